#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace sparsekiln {

/// Splitting row groups never gives a worker fewer steps than this.
inline constexpr std::int64_t kStepsWorthSplitting = 4;
/// What the worker with most steps may have of the mean, in hundredths, where whole row groups count as
/// balanced.
inline constexpr std::int64_t kBalanced = 105;

/// A range [begin, end) of the steps of one row group.
struct Stretch {
  std::int32_t row_group;
  std::int32_t begin;
  std::int32_t end;
};
/// The stretches of each worker.
using RowGroupShares = std::vector<std::vector<Stretch>>;

/// How many steps each row group has, or of a team each of its row groups. An empty one costs as much as a
/// step.
class RowGroupLengths {
 public:
  explicit RowGroupLengths(std::vector<std::int32_t> steps) : steps_(std::move(steps)) {
    for (std::int32_t row_group = 0; row_group < row_groups(); ++row_group) total_ += cost(row_group);
  }
  [[nodiscard]] std::int32_t row_groups() const { return static_cast<std::int32_t>(steps_.size()); }
  [[nodiscard]] std::int32_t of(std::int32_t row_group) const {
    return steps_[static_cast<std::size_t>(row_group)];
  }
  [[nodiscard]] std::int64_t cost(std::int32_t row_group) const { return std::max(of(row_group), 1); }
  [[nodiscard]] std::int64_t total() const { return total_; }
  [[nodiscard]] Stretch whole(std::int32_t row_group) const { return {row_group, 0, of(row_group)}; }

 private:
  std::vector<std::int32_t> steps_;
  std::int64_t total_ = 0;
};

/// Which row groups, or parts of them, each of at most `workers` workers computes; of teams, which all of
/// their workers do. Whole row groups are tried first: in contiguous runs, or, if those leave the largest
/// worker more than kBalanced above the mean, longest first and with exchanges (even_shares.h). If there are
/// several rounds of batch tiles, the largest worker is the first one. Only if a CTA would have, after all
/// rounds, more than kBalanced, and in each more than `saves` steps (steps_worth_a_cut), above the mean are
/// row groups split, at multiples of the mean.
[[nodiscard]] RowGroupShares share_row_groups(const RowGroupLengths& lengths, std::int32_t workers,
                                              std::int64_t saves, std::int64_t rounds);

}  // namespace sparsekiln
