#include "tools/report_text.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <sparsekiln/printable.h>

#include "tools/entry_report.h"

namespace sparsekiln::tools {
namespace {

constexpr std::size_t kReasonsShown = 5;
constexpr std::size_t kReasonLength = 160;

using Row = std::vector<std::string>;

Row time_row(std::string name, const Candidate& candidate) {
  const auto time = candidate.time_us();
  return {"  " + std::move(name),
          time_text(time ? std::optional(time->median) : std::nullopt),
          time_text(time ? std::optional(time->p20) : std::nullopt),
          time_text(time ? std::optional(time->p80) : std::nullopt),
          time ? std::string(sparsekiln::name(candidate.outcome)) : "",
          to_string(candidate.config)};
}

Row bound_row(std::string name, double us, const MachinePeak& peak, std::string said) {
  return {"  " + std::move(name), time_text(us), "", "", peak.measured ? "peak measured" : "peak published",
          std::move(said)};
}

std::string times_table(const ReportEntry& entry) {
  const Contest& contest = *entry.contest;
  const Standing& standing = entry.standing;
  const MachinePeak& peak = entry.record->peak;
  std::vector<Row> rows{{"", "MEDIAN_US", "P20_US", "P80_US", "", ""}};
  if (standing.best != nullptr) rows.push_back(time_row("best", *standing.best));
  const Candidate* const known = contest.find(contest.default_config);
  Candidate untimed;
  untimed.config = contest.default_config;
  rows.push_back(time_row("default", known == nullptr ? untimed : *known));
  if (standing.second != nullptr) rows.push_back(time_row("second", *standing.second));
  if (const auto share = entry.floor_share())
    rows.push_back(
        bound_row("floor", contest.floor_us, peak, fmt::format("{:.3g} % of it reached", *share * 100)));
  if (const auto speedup = entry.speedup_over_dense())
    rows.push_back(bound_row("dense", entry.dense->us, peak,
                             fmt::format("at the machine's peak: the best is {:.3g}x as fast", *speedup)));
  return table(rows);
}

std::string check_result(const ReportEntry& entry) {
  const Standing& standing = entry.standing;
  if (standing.best == nullptr) return "  no candidate has a time yet\n";
  std::string text = standing.standard == nullptr
                         ? "  the default has no time"
                         : fmt::format("  tuning: {:.3f}x as fast as the default", standing.speedup);
  if (standing.tie) text += "; the best ties with another that comes later in the order";
  if (standing.second != nullptr)
    text += fmt::format("; margin to the second {:+.1f} %", standing.margin * 100);
  return text + "\n";
}

std::string reason_lines(std::string_view what, const std::vector<ReasonCount>& reasons) {
  std::string text;
  for (std::size_t i = 0; i < std::min(reasons.size(), kReasonsShown); ++i) {
    std::string reason =
        printable(std::string_view(reasons[i].reason).substr(0, reasons[i].reason.find('\n')));
    if (reason.size() > kReasonLength) reason.resize(kReasonLength);
    text +=
        fmt::format("    {:>6} {}: {}\n", reasons[i].count, what, reason.empty() ? "(no reason)" : reason);
  }
  if (reasons.size() > kReasonsShown)
    text += fmt::format("           and {} more reasons\n", reasons.size() - kReasonsShown);
  return text;
}

std::string candidates_text(const Tally& tally) {
  return fmt::format("  candidates: {} tried, {} failed, {} pruned, {} untried; compiled for {:.3g} s\n",
                     tally.tried, tally.failed, tally.pruned, tally.untried, tally.compile_ms / 1e3) +
         reason_lines("failed", tally.why_failed) + reason_lines("pruned", tally.why_pruned) +
         reason_lines("untried", tally.why_untried);
}

std::string block_text(const ReportEntry& entry) {
  return fmt::format("{}\n  on {}; tuned for {:.3g} s\n", title(entry),
                     printable(entry.record->environment.to_string()), entry.record->seconds) +
         times_table(entry) + check_result(entry) + candidates_text(entry.tally);
}

}  // namespace

std::string time_text(std::optional<double> us) { return us ? fmt::format("{:.4g}", *us) : "-"; }

std::string report_text(const std::vector<ReportEntry>& entries) {
  std::string text;
  for (const ReportEntry& entry : entries) text += block_text(entry) + "\n";
  const TuningGain gain = tuning_gain(entries);
  text += fmt::format("{} problem{}", entries.size(), entries.size() == 1 ? "" : "s");
  if (gain.problems > 0)
    text += fmt::format("; tuned {:.3f}x as fast as the default (geometric mean of {})", gain.geometric_mean,
                        gain.problems);
  return text + "\n";
}

}  // namespace sparsekiln::tools
