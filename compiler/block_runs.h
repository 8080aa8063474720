#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/layout.h>
#include <sparsekiln/target.h>

#include "compiler/block_groups.h"
#include "compiler/sddmm.h"

namespace sparsekiln {

/// Neighboring blocks of one block row, which are computed together from the same tiles of dy.
struct BlockRun {
  std::int32_t row = 0;
  std::int32_t first = 0;     ///< number of its first block in the layout; the others follow
  std::int32_t blocks = 0;    ///< 1 to Config::rows; 0: a row without blocks, for which only dy is summed
  bool first_of_row = false;  ///< one run of every block row: the one that sums dy for the bias
  friend bool operator==(const BlockRun&, const BlockRun&) = default;
};

/// Who computes which blocks of dw, each from the whole batch: the schedule of an Sddmm. Every present block
/// is in exactly one run. A block row without blocks has a run if, and only if, the gradient of a bias needs
/// it. A block is summed by one worker alone, in ascending order of pairs and batch rows.
///
/// Variants grouped and halo have groups of pieces of blocks instead of runs.
struct BlockRuns {
  std::vector<BlockRun> runs;              ///< grouped by worker
  std::vector<BlockGroup> groups;          ///< grouped by worker
  std::vector<std::int32_t> worker_begin;  ///< workers + 1 offsets into runs, or groups

  /// Runs, or groups.
  [[nodiscard]] std::int64_t items() const {
    return static_cast<std::int64_t>(groups.empty() ? runs.size() : groups.size());
  }
  [[nodiscard]] std::int32_t workers() const { return static_cast<std::int32_t>(worker_begin.size()) - 1; }
  [[nodiscard]] std::span<const BlockRun> runs_of(std::int32_t worker) const;
  [[nodiscard]] std::span<const BlockGroup> groups_of(std::int32_t worker) const;
  friend bool operator==(const BlockRuns&, const BlockRuns&) = default;
};

/// What a run costs: its tile of dy, and its tiles of x.
[[nodiscard]] constexpr std::int64_t cost_of(const BlockRun& run) { return 1 + std::int64_t{run.blocks}; }
/// What a group costs: its tiles.
[[nodiscard]] inline std::int64_t cost_of(const BlockGroup& group) { return group.tiles(); }

/// Divides block rows into runs of config.rows blocks, the last of a row with what is left, and distributes
/// the runs over at most target.workers × config.split workers, none of them idle: in waves, of neighboring
/// runs, or, if those give the largest worker a tenth more, in any order (even_shares.h), which is within
/// 4/3 of the optimum. An empty layout has one worker, without runs. O(runs · log runs); the same input gives
/// the same schedule for every n. Groups are computed by workers in turn.
[[nodiscard]] BlockRuns make_block_runs(const Sddmm& gradient, const Target& target, const Config& config);

/// One schedule for each range of a plan.
[[nodiscard]] std::vector<BlockRuns> make_schedules(const Sddmm& gradient, const Target& target,
                                                    const Plan& plan);

/// No schedule of this gradient with config.rows = `width` has more runs. It is derived from the layout's
/// size alone.
[[nodiscard]] std::int64_t run_bound(const Sddmm& gradient, std::int32_t width);

}  // namespace sparsekiln
