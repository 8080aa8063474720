#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

namespace sparsekiln {

/// What the operand coordinates of a Step mean. Convolution will use `tap`, attention none of the weight.
enum class Role : std::uint8_t { output, input, tap, extra };

/// The atom of a schedule: one block product. Coordinates are in blocks, indexed by Role; unused ones are 0.
struct Step {
  std::array<std::int32_t, 4> operand{};
  std::int32_t block = 0;   ///< row-major number of the weight's block; -1 where there is none
  std::uint32_t flags = 0;  ///< none yet
  friend bool operator==(const Step&, const Step&) = default;
};

/// A stretch of steps that accumulate into one output tile: a whole block row, or one part of a split row.
struct Item {
  std::int32_t output = 0;      ///< block row of y
  std::int32_t first_step = 0;  ///< index into Schedule::steps
  std::int32_t steps = 0;       ///< 0: an empty row, written as zeros
  std::int32_t part = 0;        ///< position in the fixed order of the combine
  std::int32_t parts = 1;       ///< 1: whole, stored directly
  std::int32_t partial =
      -1;  ///< slot of the row's part 0 in the workspace (part p uses partial + p); -1: whole
  std::int32_t counter = -1;  ///< the split row's arrival counter; -1: whole
  friend bool operator==(const Item&, const Item&) = default;
};

/// Who computes what, in which order, for one batch tile. Every present block appears exactly once. Parts of
/// a row ascend in k, and are summed in ascending order of part whoever arrives last, so the result is
/// deterministic.
struct Schedule {
  std::vector<Step> steps;  ///< in row-major order of the layout, ascending columns within a row
  std::vector<Item> items;  ///< grouped by worker
  std::vector<std::int32_t> worker_begin;  ///< workers + 1 offsets into items
  std::int32_t partials = 0;               ///< workspace slots a batch tile, each block.out × tile_n float32
  std::int32_t counters = 0;               ///< split rows

  [[nodiscard]] std::int32_t workers() const { return static_cast<std::int32_t>(worker_begin.size()) - 1; }
  /// Steps of one worker, an empty row counted as one step.
  [[nodiscard]] std::int64_t cost(std::int32_t worker) const;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// Bytes of the arrival counters in front of a workspace: room for every entry of a plan at its largest n.
[[nodiscard]] std::int64_t counter_bytes(const Plan& plan, const std::vector<Schedule>& schedules);

/// The n that each entry of a plan is scheduled for: the smallest it serves, which has the fewest batch tiles
/// to share out. A fixed batch has one n.
[[nodiscard]] std::int64_t scheduled_n(const Problem& problem, const Plan& plan, std::size_t entry);

/// Balances the block rows of a forward product over target.workers × config.split CTAs, shared by the batch
/// tiles of n = `n`. Whole rows first: in contiguous runs, else longest row first (Graham 1969); only where
/// both leave the largest worker more than 5 % above the mean are rows cut, at multiples of the mean. Then no
/// worker exceeds the mean by more than one step. O(blocks + rows · log rows); the same input gives the same
/// schedule.
[[nodiscard]] Schedule make_schedule(const Problem& problem, const Target& target, const Config& config,
                                     std::int64_t n);

}  // namespace sparsekiln
