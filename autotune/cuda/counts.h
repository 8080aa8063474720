#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/block_runs.h"
#include "compiler/cuda/tables.h"
#include "compiler/schedule.h"
#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// Figures of a schedule, of one batch tile: all that its work follows from.
struct Counts {
  std::int64_t workers = 1;
  std::int64_t items = 0;
  std::int64_t row_groups = 0;      ///< items that reach y: of the parts of a split row group, one does
  std::int64_t chunks = 0;          ///< stages' contents, as the kernel's tables count them
  std::int64_t without_blocks = 0;  ///< chunks that only keep pace with those of a team's other worker
  std::int64_t loads = 0;       ///< tiles of x, of ChunkShape::columns blocks' inputs each, once for a team
  std::int64_t team_loads = 0;  ///< of these, those that all workers of a team get
  std::int64_t partials = 0;    ///< parts of split row groups
  std::int64_t counters = 0;    ///< split row groups
  double largest = 1;           ///< steps of the CTA that has most after all rounds, of the mean
};
/// For a batch that is computed in so many rounds of batch tiles.
[[nodiscard]] Counts counts_of(const Schedule& schedule, ChunkShape chunk, std::int64_t rounds);

/// Blocks of a layout whose schedules are made to price configs: of larger ones statistics are accurate
/// enough, and schedules take too long.
inline constexpr std::int64_t kMostScheduled = 1 << 15;

/// How the block rows of a layout would be distributed as they are, for as many numbers of workers as are
/// asked for: what the configs of one problem share.
class RowShares {
 public:
  /// Rows are known one by one up to 2048 of them; for more, statistics are accurate enough.
  explicit RowShares(const Layout& layout);

  /// Whether there are rows, and they are known one by one.
  [[nodiscard]] bool known() const { return !begins_.empty(); }
  /// Whether rows are known, and a schedule is quickly made.
  [[nodiscard]] bool are_scheduled() const { return known() && layout_.blocks() <= kMostScheduled; }
  /// What a CTA has at most after so many rounds, of the mean, in the first order that make_schedule would
  /// take: where it is above `most`, rows are split.
  [[nodiscard]] double largest(std::int64_t workers, std::int64_t rounds, double most);

  /// What becomes of the rows where so many workers get equal shares of them.
  struct Parts {
    std::int64_t wholes = 0;    ///< rows that are not split
    std::int64_t partials = 0;  ///< parts of the others
    std::int64_t chunks = 0;    ///< of all
  };
  [[nodiscard]] const Parts& split(std::int64_t workers, ChunkShape chunk);

  /// The counts of the schedule itself: whether putting rows together pays depends on which columns they
  /// share, of which statistics say nothing.
  [[nodiscard]] const Counts& scheduled(const Spmm& problem, const Target& target, const Config& config,
                                        ChunkShape chunk, std::int64_t n);

 private:
  struct Orders {
    double least = 0;  ///< of a worker, in any order, of the mean
    /// What workers have, most first.
    std::optional<std::vector<std::int64_t>> contiguous;
    std::optional<std::vector<std::int64_t>> any;
  };
  /// Row groups before they are shared out.
  struct Listed {
    std::vector<std::int32_t> begins;  ///< as StepLists has it
    std::vector<std::int32_t> inputs;  ///< of each step, its block column
    std::vector<std::uint32_t> flags;  ///< the same
    std::vector<bool> present;         ///< the same, whether it has a block
    ScheduleFigures figures;           ///< of the steps
  };
  [[nodiscard]] const Listed& listed(const Spmm& problem, const Config& config);
  [[nodiscard]] std::vector<std::int64_t> contiguous(std::int64_t workers) const;
  [[nodiscard]] std::vector<std::int64_t> in_any_order(std::int64_t workers) const;

  Layout layout_;
  std::span<const std::int32_t> begins_;
  std::vector<std::int64_t> costs_;  ///< of the rows
  std::int64_t total_ = 0;
  std::int64_t shortest_ = 0;
  std::int64_t longest_ = 0;
  std::map<std::int64_t, Orders> orders_;                     ///< by workers
  std::map<std::array<std::int64_t, 5>, Parts> splits_;       ///< by workers and the numbers of a chunk
  std::map<std::array<std::int32_t, 4>, Listed> lists_;       ///< by what list_steps follows from
  std::map<std::array<std::int32_t, 12>, Counts> schedules_;  ///< by the numbers that a schedule follows from
};

/// What make_schedule would give for a batch of n. It is made where CTAs share x, and where rows of a small
/// layout are put together. `rows`: of the problem's layout.
[[nodiscard]] Counts expected_counts(const Spmm& problem, const Target& target, const Config& config,
                                     ChunkShape chunk, std::int64_t n, RowShares& rows);

/// Figures of a schedule of block runs, or of groups.
struct RunCounts {
  std::int64_t workers = 1;
  std::int64_t runs = 0;  ///< or groups
  /// Warps along the inputs that have blocks to multiply, each run's added up; groups.
  std::int64_t warps_in = 0;
  double largest = 1;
  std::int64_t out_tiles = 0;  ///< of dy that groups read
  std::int64_t in_tiles = 0;   ///< of x
  double largest_tiles = 1;    ///< of the worker that has most groups' tiles, of the mean
};
/// `warps`: side by side along the inputs of a run of config.rows blocks.
[[nodiscard]] RunCounts counts_of(const BlockRuns& schedule, const Config& config, std::int32_t warps);
[[nodiscard]] RunCounts expected_counts(const Sddmm& gradient, const Target& target, const Config& config,
                                        std::int32_t warps);

}  // namespace sparsekiln::cuda
