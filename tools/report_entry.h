#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autotune/record.h"

namespace sparsekiln::tools {

/// A reason, and how many candidates have it.
struct ReasonCount {
  std::string reason;
  std::int64_t count = 0;
};

/// What became of the candidates of a contest. Reasons are the most frequent first.
struct Tally {
  std::int64_t tried = 0;  ///< measured or modelled: they have a time
  std::int64_t failed = 0;
  std::int64_t pruned = 0;
  std::int64_t untried = 0;
  std::vector<ReasonCount> why_failed;
  std::vector<ReasonCount> why_pruned;
  std::vector<ReasonCount> why_untried;
  double compile_ms = 0;  ///< of all candidates together
};
[[nodiscard]] Tally tally(const Contest& contest);

/// The dense product of the same shape, batch and types on a machine that reaches its peak.
struct DenseProduct {
  double flops = 0;
  double bytes = 0;
  double us = 0;  ///< flops over the peak or bytes over the bandwidth, the larger
};
/// Nothing where the record lacks a block shape, a type or a peak.
[[nodiscard]] std::optional<DenseProduct> dense_product(const Record& record, const Contest& contest);

/// One contest of a record, and what follows from it. Points into the record, which must outlive it.
struct ReportEntry {
  const Record* record = nullptr;
  const Contest* contest = nullptr;
  Standing standing;
  Tally tally;
  std::optional<DenseProduct> dense;

  [[nodiscard]] std::optional<double> best_us() const;             ///< median
  [[nodiscard]] std::optional<double> floor_share() const;         ///< floor over best
  [[nodiscard]] std::optional<double> speedup_over_dense() const;  ///< 2: half of the dense product's time
};
/// An entry a contest, in the records' order.
[[nodiscard]] std::vector<ReportEntry> entries_of(const std::vector<Record>& records);

/// The ratios of default over best, where both have a time: their number and geometric mean (1 if none).
struct TuningGain {
  std::int64_t problems = 0;
  double geometric_mean = 1;
};
[[nodiscard]] TuningGain tuning_gain(const std::vector<ReportEntry>& entries);

/// A problem in one line, without control characters: "forward, 80x160 blocks of 32x32, 25 % dense, batch 64,
/// f32, x86-64-v3:2, layout 01234567", and then whatever else is not as usual.
[[nodiscard]] std::string title(const ReportEntry& entry);

}  // namespace sparsekiln::tools
