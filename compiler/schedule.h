#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/spmm.h"

namespace sparsekiln {

/// What the operand coordinates of a Step mean. A convolution's taps are part of its block columns.
enum class Role : std::uint8_t { output, input };

/// The most block rows of one output tile, Config::merge.
inline constexpr std::int32_t kMostMerged = 4;
/// The most output tiles of one item, Config::rows.
inline constexpr std::int32_t kMostRows = 8;

/// One step of a schedule: a tile of x times one block, or times as many blocks as Config::merge stacks.
struct Step {
  /// By Role. output: the output tile (see Schedule::row_of_place); input: the block column. Unused: 0.
  std::array<std::int32_t, 4> operand{};
  /// Number of the weight's block, in the order of its layout, for each of the tile's block rows; -1 if the
  /// block is absent and replaced by zeros. None is present in steps that only keep pace: see
  /// Schedule::cluster_rows.
  std::array<std::int32_t, kMostMerged> block{-1, -1, -1, -1};
  std::uint32_t flags = 0;  ///< of StepFlag
  [[nodiscard]] std::int32_t output() const { return operand[0]; }
  [[nodiscard]] std::int32_t input() const { return operand[1]; }
  [[nodiscard]] bool present() const {
    return std::any_of(block.begin(), block.end(), [](std::int32_t number) { return number >= 0; });
  }
  friend bool operator==(const Step&, const Step&) = default;
};
enum StepFlag : std::uint32_t {
  /// the step before it, of the same item, has the same input: its tile of x is loaded already
  kSameInput = 1,
  /// the team's other worker has a step of another input, or none with a block: its tile of x is loaded for
  /// this one alone, if this one has a block
  kAlone = 2,
};

/// A range of the steps of one row group, which accumulate into its Config::rows output tiles: all of the
/// steps, or one part of a split row group.
struct Item {
  std::int32_t tile = 0;        ///< the row group's first output tile
  std::int32_t first_step = 0;  ///< index into Schedule::steps
  std::int32_t steps = 0;       ///< 0: nothing to add; the tiles are written as zeros
  std::int32_t part = 0;        ///< position in the fixed order of the combine
  std::int32_t parts = 1;       ///< 1: whole, stored directly
  std::int32_t partial =
      -1;  ///< slot of the row group's part 0 in the workspace (part p uses partial + p); -1: whole
  std::int32_t counter = -1;  ///< the split row group's arrival counter; -1: whole
  friend bool operator==(const Item&, const Item&) = default;
};

/// Who computes what, in which order, for one batch tile.
///
/// Block rows have places: `merge` neighboring places are one output tile, and `rows` neighboring tiles one
/// row group. The steps of a row group go through the columns that any of its rows needs, in ascending order,
/// and in each column through its tiles. With rows = merge = 1 every block row is its own place, tile and row
/// group. With cluster_rows = 2, two neighboring row groups are a team, which two neighboring workers compute
/// at the same pace, item by item: both go through the columns that both need, and what one loads of x serves
/// both; then each goes through those that it alone needs. Both have as many steps in each column; one that
/// has fewer blocks there, or fewer columns of its own, has steps without any.
/// Every present block occurs exactly once. The parts of a row group are in the order of its steps, and are
/// added in ascending order of part in any order of arrival, so the result is deterministic.
struct Schedule {
  std::int32_t rows = 1;          ///< Config::rows
  std::int32_t merge = 1;         ///< Config::merge
  std::int32_t cluster_rows = 1;  ///< Config::cluster_rows, row groups of a team
  /// row groups × rows × merge block rows; -1: a place without a block row
  std::vector<std::int32_t> row_of_place;
  std::vector<Step> steps;                 ///< row group by row group
  std::vector<Item> items;                 ///< grouped by worker
  std::vector<std::int32_t> worker_begin;  ///< workers + 1 offsets into items
  std::int32_t partials =
      0;  ///< workspace slots a batch tile, each rows × merge × block.out × tile_n float32
  std::int32_t counters = 0;  ///< split row groups

  [[nodiscard]] std::int32_t workers() const { return static_cast<std::int32_t>(worker_begin.size()) - 1; }
  /// Places of a team.
  [[nodiscard]] std::int32_t team_places() const { return rows * merge * cluster_rows; }
  /// The block rows of an output tile; -1: none.
  [[nodiscard]] std::span<const std::int32_t> rows_of_tile(std::int32_t tile) const;
  [[nodiscard]] std::span<const Item> items_of(std::int32_t worker) const;
  [[nodiscard]] std::span<const Step> steps_of(const Item& item) const;
  /// The worker that a CTA is in a round of batch tiles: CTAs change places in every other one
  /// (most_after_rounds of even_shares.h), those of a team together. As worker_of_round of
  /// templates/schedule.cuh.
  [[nodiscard]] std::int32_t worker_of_round(std::int32_t cta, std::int64_t round) const;
  /// The steps of the CTA that has most after so many rounds, of the mean.
  [[nodiscard]] double balance(std::int64_t rounds) const;
  /// Steps of one worker; an item without steps counts as one.
  [[nodiscard]] std::int64_t cost(std::int32_t worker) const;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// What a schedule costs in addition to the arithmetic on present blocks, for one batch tile.
struct ScheduleFigures {
  std::int64_t steps = 0;
  std::int64_t loads = 0;          ///< tiles of x that are read, once for a team where it shares them
  std::int64_t team_loads = 0;     ///< of these, those that all workers of a team get
  std::int64_t one_row_loads = 0;  ///< those of a schedule of single rows: present blocks
  /// blocks of zeros that merging multiplies, without those that fill up chunks
  std::int64_t filled = 0;
  std::int64_t largest_cost = 0;    ///< of a worker
  double mean_cost = 0;             ///< of the workers
  std::int64_t without_blocks = 0;  ///< steps that only keep pace
  /// Share of the loads that row groups save, 0 to 1.
  [[nodiscard]] double saved() const {
    return one_row_loads == 0 ? 0 : 1 - static_cast<double>(loads) / static_cast<double>(one_row_loads);
  }
  /// Largest over mean; 1: no worker waits for another.
  [[nodiscard]] double balance() const {
    return mean_cost == 0 ? 1 : static_cast<double>(largest_cost) / mean_cost;
  }
};
[[nodiscard]] ScheduleFigures figures(const Schedule& schedule);
/// The figures of steps alone: those of workers are 0.
[[nodiscard]] ScheduleFigures figures(std::span<const Step> steps, std::int32_t merge,
                                      std::int32_t cluster_rows);

/// No schedule of this layout over at most `workers` CTAs has more items. It is derived from the layout's
/// size alone.
[[nodiscard]] std::int64_t item_bound(const Layout& layout, const Config& config, std::int64_t workers);

/// Bytes of the arrival counters at the start of a workspace: enough for every entry of a plan at its largest
/// n.
[[nodiscard]] std::int64_t counter_bytes(const Spmm& problem, const Plan& plan,
                                         const std::vector<Schedule>& schedules);

/// The n that each entry of a plan is scheduled for: the smallest that it serves, which has the fewest batch
/// tiles to distribute. A fixed batch has one n.
[[nodiscard]] std::int64_t scheduled_n(Batch batch, const Plan& plan, std::size_t entry);

/// Batch tiles of a batch of `n` that are computed at the same time.
[[nodiscard]] std::int64_t tiles_at_once(const Spmm& problem, const Config& config, std::int64_t n);

/// Rounds of so many tiles that a batch of `n` is computed in: several only on CUDA targets.
[[nodiscard]] std::int64_t rounds_of(const Spmm& problem, const Config& config, std::int64_t n);
/// Whether CTAs change places between rounds (Schedule::worker_of_round). Kernels of halo have no register
/// for it.
[[nodiscard]] bool changes_places(const Config& config);
/// Rounds after which CTAs must have about as much as one another: all where they change places, else each.
[[nodiscard]] std::int64_t balanced_rounds(const Spmm& problem, const Config& config, std::int64_t n);

/// Whether it is worth milliseconds that row groups read few tiles of x: for wgmma_rows. The row groups of
/// other kernels for large batches are those that an H100 was measured with.
[[nodiscard]] bool searches_row_groups(const Config& config);

/// More steps than any schedule has.
inline constexpr std::int64_t kNeverCut = std::int64_t{1} << 40;
/// Steps that splitting row groups must save: Config::split_saves, or kNeverCut where the tiles of an item
/// are stored one by one, as each has its sums.
[[nodiscard]] std::int64_t steps_worth_a_cut(const Config& config);

/// No schedule for `n` has more workers, whatever the layout.
[[nodiscard]] std::int32_t most_workers(const Spmm& problem, const Target& target, const Config& config,
                                        std::int64_t n);

/// Puts the block rows of a product into row groups (row_group.h) and balances these over target.workers ×
/// config.split CTAs, shared by the tiles_at_once of n = `n`. Whole row groups are tried first: in contiguous
/// runs, or, if those leave the largest worker more than 5 % above the mean, longest first and with exchanges
/// (even_shares.h). If there are several rounds, the largest worker is the first one. Only if a CTA would
/// have, after all rounds, more than 5 %, and in each more than Config::split_saves steps, above the mean are
/// row groups split, at multiples of the mean. Then no worker exceeds the mean by more than one step.
/// O(blocks + rows · log rows) and the search for row groups; the same input gives the same schedule.
/// `up_to`: the largest n of a range that begins with `n`, whose rounds count; 0: the range is `n` alone.
/// Throws `invalid_argument` if config.rows, config.merge or config.cluster_rows is out of range, or merging
/// is excluded by Problem::strict_absent.
[[nodiscard]] Schedule make_schedule(const Spmm& problem, const Target& target, const Config& config,
                                     std::int64_t n, std::int64_t up_to = 0);

/// What the schedules of a problem have in common whose configs put rows together alike: by rows, merge,
/// searches_row_groups and cluster_rows.
struct StepLists {
  std::vector<std::int32_t> row_of_place;  ///< as Schedule has it
  std::vector<Step> steps;                 ///< kSameInput as if no row group were split
  std::vector<std::int32_t> begins;        ///< of the row groups among the steps, and the end
};
/// The part of make_schedule that takes longest, and that throws.
[[nodiscard]] StepLists list_steps(const Spmm& problem, const Config& config);
/// The rest of it, a schedule without rows and steps: the items of the row groups that list_steps lists for
/// the same problem and for a config with the same rows, merge and cluster_rows.
[[nodiscard]] Schedule share_out(std::span<const std::int32_t> begins, const Spmm& problem,
                                 const Target& target, const Config& config, std::int64_t n,
                                 std::int64_t rounds);

/// One schedule for each range of a plan, each for its scheduled_n and the rounds of its largest n, for which
/// it was chosen.
[[nodiscard]] std::vector<Schedule> make_schedules(const Spmm& problem, const Target& target,
                                                   const Plan& plan);

}  // namespace sparsekiln
