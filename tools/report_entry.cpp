#include "tools/report_entry.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>
#include <sparsekiln/problem.h>

#include "compiler/computation_fields.h"

namespace sparsekiln::tools {
namespace {

/// Counts equal reasons.
class Reasons {
 public:
  void count(const std::string& reason, std::int64_t times) {
    const auto [place, fresh] = places_.try_emplace(reason, counts_.size());
    if (fresh)
      counts_.push_back({reason, times});
    else
      counts_[place->second].count += times;
  }
  /// The most frequent first; of equally many, the one that came first.
  std::vector<ReasonCount> by_count() && {
    std::stable_sort(counts_.begin(), counts_.end(),
                     [](const ReasonCount& a, const ReasonCount& b) { return a.count > b.count; });
    return std::move(counts_);
  }

 private:
  std::vector<ReasonCount> counts_;
  std::map<std::string_view, std::size_t> places_;  ///< of reasons that outlive this
};

/// "12x34", where 0 stands for a size that is not cut.
struct Features {
  double out = 0;
  double in = 0;
};
Features cut_features(std::string_view text) {
  const std::size_t cross = text.find('x');
  if (cross == std::string_view::npos) return {};
  const auto number = [](std::string_view digits) {
    double value = 0;
    for (const char digit : digits) {
      if (digit < '0' || digit > '9') return 0.0;
      value = value * 10 + (digit - '0');
    }
    return value;
  };
  return {number(text.substr(0, cross)), number(text.substr(cross + 1))};
}

/// The type of the weight or of its gradient, of which a dense product has more elements.
DType weight_type(const Record& record) {
  const bool gradient = record.field("operation") == name(Operation::grad_weight);
  return parse_dtype(gradient ? record.field("out_dtype") : record.field("dtype"));
}

/// The geometry of a convolution; a record of a linear layer does not state it.
Computation geometry_of(const Record& record) {
  Computation what;
  if (const std::string_view text = record.field("convolution"); !text.empty())
    what.convolution = parse_convolution(text);
  return what;
}

}  // namespace

Tally tally(const Contest& contest) {
  Tally tally;
  Reasons failed;
  Reasons pruned;
  Reasons untried;
  for (const Candidate& candidate : contest.candidates) {
    tally.compile_ms += candidate.compile_ms;
    switch (candidate.outcome) {
      case Outcome::measured:
      case Outcome::modelled:
        ++tally.tried;
        break;
      case Outcome::failed:
        ++tally.failed;
        failed.count(candidate.reason, 1);
        break;
      case Outcome::pruned:
        ++tally.pruned;
        pruned.count(candidate.reason, 1);
        break;
      case Outcome::untried:
        ++tally.untried;
        untried.count(candidate.reason, 1);
        break;
    }
  }
  for (const PrunedGroup& group : contest.pruned) {
    tally.pruned += group.count;
    pruned.count(group.reason, group.count);
  }
  tally.why_failed = std::move(failed).by_count();
  tally.why_pruned = std::move(pruned).by_count();
  tally.why_untried = std::move(untried).by_count();
  return tally;
}

std::optional<DenseProduct> dense_product(const Record& record, const Contest& contest) {
  if (record.peak.gflops <= 0 || record.peak.gbytes <= 0) return std::nullopt;
  try {
    const BlockShape block = parse_block_shape(record.field("block"));
    const Features cut = cut_features(record.field("features"));
    const double out = cut.out > 0 ? cut.out : static_cast<double>(record.layout.rows) * block.out;
    const double in = cut.in > 0 ? cut.in : static_cast<double>(record.layout.cols) * block.in;
    const Computation geometry = geometry_of(record);
    const double weights = out * in * geometry.taps();
    const std::vector<bool>& mask = geometry.convolution.tap_mask;
    const auto there = static_cast<double>(std::count(mask.begin(), mask.end(), true));
    const double of_taps = mask.empty() ? 1 : there / static_cast<double>(mask.size());
    const double absent = std::max(0.0, 1 - record.layout.density() * of_taps) * weights;
    DenseProduct dense;
    dense.flops = 2 * weights * static_cast<double>(geometry.product_rows(contest.n));
    dense.bytes = contest.bytes + absent * static_cast<double>(size_of(weight_type(record)));
    dense.us = std::max(dense.flops / record.peak.gflops, dense.bytes / record.peak.gbytes) / 1e3;
    return dense;
  } catch (const Error&) {  // the record is of a version that names these otherwise
    return std::nullopt;
  }
}

std::optional<double> ReportEntry::best_us() const {
  if (standing.best == nullptr) return std::nullopt;
  const double us = standing.best->time_us()->median;
  return us > 0 ? std::optional(us) : std::nullopt;
}

std::optional<double> ReportEntry::floor_share() const {
  const auto us = best_us();
  return us && contest->floor_us > 0 ? std::optional(contest->floor_us / *us) : std::nullopt;
}

std::optional<double> ReportEntry::speedup_over_dense() const {
  const auto us = best_us();
  return us && dense ? std::optional(dense->us / *us) : std::nullopt;
}

std::vector<ReportEntry> entries_of(const std::vector<Record>& records) {
  std::vector<ReportEntry> entries;
  for (const Record& record : records)
    for (const Contest& contest : record.contests)
      entries.push_back(
          {&record, &contest, standing(contest), tally(contest), dense_product(record, contest)});
  return entries;
}

TuningGain tuning_gain(const std::vector<ReportEntry>& entries) {
  TuningGain gain;
  double logarithms = 0;
  for (const ReportEntry& entry : entries) {
    const double speedup = entry.standing.speedup;
    if (entry.standing.standard == nullptr || !entry.best_us() || !std::isfinite(speedup) || speedup <= 0)
      continue;
    ++gain.problems;
    logarithms += std::log(speedup);
  }
  if (gain.problems > 0) gain.geometric_mean = std::exp(logarithms / static_cast<double>(gain.problems));
  return gain;
}

std::string title(const ReportEntry& entry) {
  const Record& record = *entry.record;
  const LayoutSummary& layout = record.layout;
  std::string text = fmt::format("{}, {}x{} blocks of {}, {:.4g} % dense, batch {}, {}, {}, layout {}",
                                 record.field("operation"), layout.rows, layout.cols, record.field("block"),
                                 layout.density() * 100, record.field("batch"), record.field("dtype"),
                                 record.field("target"), record.field("layout").substr(0, 8));
  if (record.field("batch") != std::to_string(entry.contest->n))
    text += fmt::format(", at n = {}", entry.contest->n);
  const auto tell = [&](std::string_view field, std::string_view usual) {
    const std::string_view value = record.field(field);
    if (!value.empty() && value != usual) text += fmt::format(", {} {}", field, value);
  };
  tell("features", "0x0");
  constexpr std::array<std::string_view, 4> kTold{"operation", "block", "batch", "dtype"};
  for (const ComputationField& field : computation_fields())
    if (std::find(kTold.begin(), kTold.end(), field.name) == kTold.end())
      tell(field.name, field.follows.empty() ? field.usual() : record.field(field.follows));
  return printable(text);
}

}  // namespace sparsekiln::tools
