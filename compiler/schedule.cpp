#include "compiler/schedule.h"

#include <numeric>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/binary.h>
#include <sparsekiln/error.h>

#include "compiler/even_shares.h"
#include "compiler/row_group.h"
#include "compiler/row_group_shares.h"

namespace sparsekiln {
namespace {

/// Block rows to places: tiles of merged rows first, then row groups of tiles.
std::vector<std::int32_t> place_rows(const Layout& layout, std::int32_t rows, std::int32_t merge,
                                     bool searches) {
  const RowSets sets = RowSets::of(layout);
  const std::vector<std::int32_t> merged = group_rows(sets, merge);
  const std::vector<std::int32_t> tiles =
      group_rows(merge == 1 ? sets : unite(sets, merged, merge), rows, searches);
  std::vector<std::int32_t> places;
  places.reserve(tiles.size() * static_cast<std::size_t>(merge));
  for (const std::int32_t tile : tiles)
    for (std::int32_t row = 0; row < merge; ++row)
      places.push_back(tile == kNoRow ? kNoRow : merged[static_cast<std::size_t>(tile) * merge + row]);
  return places;
}

/// A present block, and the place in its team of the accumulators that it is added to.
struct Present {
  std::int32_t col;
  std::int32_t place;
  std::int32_t block;
};

/// The blocks of every team, in the order of column and place; team_begin has one offset per team and one
/// more. They are sorted by column and then, stably, by team: O(blocks + columns + places).
std::vector<Present> in_order_of_steps(const Layout& layout, const Schedule& schedule,
                                       const std::vector<std::int32_t>& team_begin) {
  const std::int32_t size = schedule.team_places();
  const auto blocks = static_cast<std::size_t>(layout.blocks());
  std::vector<Present> sorted(blocks);
  if (size == 1) {  // in their own order
    std::size_t block = 0;
    for (const std::int32_t col : layout.col()) {
      sorted[block] = {col, 0, static_cast<std::int32_t>(block)};
      ++block;
    }
    return sorted;
  }
  std::vector<std::int32_t> next(static_cast<std::size_t>(layout.cols()) + 1, 0);  // of each column
  for (const std::int32_t col : layout.col()) ++next[static_cast<std::size_t>(col) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<Present> by_column(blocks);
  for (std::size_t place = 0; place < schedule.row_of_place.size(); ++place) {
    const std::int32_t row = schedule.row_of_place[place];
    if (row == kNoRow) continue;
    std::int32_t block = layout.crow()[static_cast<std::size_t>(row)];
    for (const std::int32_t col : layout.row(row))
      by_column[static_cast<std::size_t>(next[static_cast<std::size_t>(col)]++)] = {
          col, static_cast<std::int32_t>(place), block++};
  }
  next.assign(team_begin.begin(), team_begin.end());
  for (const Present& present : by_column) {
    const std::int32_t team = present.place / size;
    sorted[static_cast<std::size_t>(next[static_cast<std::size_t>(team)]++)] = {
        present.col, present.place - team * size, present.block};
  }
  return sorted;
}

/// Where the blocks of each team begin among all blocks, if teams follow each other.
std::vector<std::int32_t> begins_of_teams(const Layout& layout, const Schedule& schedule) {
  const auto size = static_cast<std::size_t>(schedule.team_places());
  std::vector<std::int32_t> begins{0};
  for (std::size_t first = 0; first < schedule.row_of_place.size(); first += size) {
    std::int32_t end = begins.back();
    for (std::size_t place = first; place < first + size; ++place)
      if (const std::int32_t row = schedule.row_of_place[place]; row != kNoRow)
        end += static_cast<std::int32_t>(layout.row(row).size());
    begins.push_back(end);
  }
  return begins;
}

/// The steps of the row groups of a team, which keep pace: those of columns that all of them need, and then
/// those of the others.
class TeamSteps {
 public:
  /// The tiles of the team from `first_tile` on.
  TeamSteps(const Schedule& schedule, std::int32_t first_tile)
      : rows_(schedule.rows),
        first_tile_(first_tile),
        row_groups_(schedule.cluster_rows),
        column_(row_groups_.size()),
        alone_(row_groups_.size()) {}

  /// In ascending order of column and tile.
  void add(std::int32_t col, std::int32_t tile, std::int32_t place, std::int32_t block) {
    if (col != col_) {
      end_column();
      col_ = col;
      tile_ = -1;
    }
    Steps& steps = column_[static_cast<std::size_t>(tile / rows_)];
    if (tile != tile_) steps.emplace_back().operand = {first_tile_ + tile, col, 0, 0};
    tile_ = tile;
    steps.back().block[static_cast<std::size_t>(place)] = block;
  }
  /// Call once, after all were added.
  [[nodiscard]] std::span<const std::vector<Step>> row_groups() {
    end_column();
    std::size_t most = 0;
    for (const auto& columns : alone_) most = std::max(most, columns.size());
    for (std::size_t i = 0; i < most; ++i) {
      for (std::size_t row_group = 0; row_group < alone_.size(); ++row_group)
        column_[row_group] = i < alone_[row_group].size() ? std::move(alone_[row_group][i]) : Steps();
      append_column(kAlone);
    }
    return row_groups_;
  }

 private:
  using Steps = std::vector<Step>;

  void end_column() {
    const auto empty = [](const Steps& steps) { return steps.empty(); };
    if (std::none_of(column_.begin(), column_.end(), empty)) {
      append_column(0);
      return;
    }
    for (std::size_t row_group = 0; row_group < column_.size(); ++row_group)
      if (!column_[row_group].empty()) alone_[row_group].push_back(std::move(column_[row_group]));
    for (Steps& steps : column_) steps.clear();
  }
  /// The steps of a column of each, as many of all of them.
  void append_column(std::uint32_t flags) {
    std::size_t most = 0;
    std::int32_t col = 0;
    for (const Steps& steps : column_) {
      most = std::max(most, steps.size());
      if (!steps.empty()) col = steps.front().input();
    }
    for (std::size_t row_group = 0; row_group < column_.size(); ++row_group) {
      Steps& steps = column_[row_group];
      Step none;
      none.operand = {first_tile_ + static_cast<std::int32_t>(row_group) * rows_,
                      steps.empty() ? col : steps.front().input(), 0, 0};
      steps.resize(most, none);
      for (Step& step : steps) step.flags = flags | (&step == &steps.front() ? 0 : std::uint32_t{kSameInput});
      row_groups_[row_group].insert(row_groups_[row_group].end(), steps.begin(), steps.end());
      steps.clear();
    }
  }

  const std::int32_t rows_;
  const std::int32_t first_tile_;
  std::vector<Steps> row_groups_;
  std::vector<Steps> column_;              ///< of each row group, of the column that is added to
  std::vector<std::vector<Steps>> alone_;  ///< of each row group, by column
  std::int32_t col_ = -1;
  std::int32_t tile_ = -1;
};

/// Fills in the steps, row group by row group. Returns where each begins, and the end.
std::vector<std::int32_t> add_steps(const Layout& layout, Schedule& schedule) {
  const std::vector<std::int32_t> begins = begins_of_teams(layout, schedule);
  const std::vector<Present> blocks = in_order_of_steps(layout, schedule, begins);
  schedule.steps.reserve(blocks.size());
  std::vector<std::int32_t> first_steps{0};
  for (std::size_t team = 0; team + 1 < begins.size(); ++team) {
    TeamSteps steps(schedule, static_cast<std::int32_t>(team) * schedule.rows * schedule.cluster_rows);
    for (auto at = static_cast<std::size_t>(begins[team]); at < static_cast<std::size_t>(begins[team + 1]);
         ++at) {
      const Present& next = blocks[at];
      steps.add(next.col, next.place / schedule.merge, next.place % schedule.merge, next.block);
    }
    for (const std::vector<Step>& row_group : steps.row_groups()) {
      schedule.steps.insert(schedule.steps.end(), row_group.begin(), row_group.end());
      first_steps.push_back(static_cast<std::int32_t>(schedule.steps.size()));
    }
  }
  return first_steps;
}

/// The shares of teams as those of their row groups: the workers of a team have the same stretches.
RowGroupShares shares_of_row_groups(const RowGroupShares& of_teams, std::int32_t size) {
  RowGroupShares shares;
  for (const auto& stretches : of_teams)
    for (std::int32_t member = 0; member < size; ++member) {
      auto& own = shares.emplace_back(stretches);
      for (Stretch& stretch : own) stretch.row_group = stretch.row_group * size + member;
    }
  return shares;
}

/// The schedule is that of the product's layout; blocks are numbered as in W.
void name_blocks_of_weight(const Spmm& problem, Schedule& schedule) {
  for (Step& step : schedule.steps)
    for (std::int32_t& block : step.block)
      if (block >= 0) block = problem.block_of_weight(block);
}

/// Shares become items, with the beginnings from add_steps. Parts of a row group occur in ascending order,
/// since split positions ascend with the worker.
void add_items(Schedule& schedule, const RowGroupShares& shares, std::span<const std::int32_t> first_steps) {
  std::vector<std::int32_t> parts(first_steps.size() - 1, 0);
  schedule.worker_begin.push_back(0);
  for (const auto& stretches : shares) {
    for (const Stretch& stretch : stretches) {
      const auto row_group = static_cast<std::size_t>(stretch.row_group);
      Item item;
      item.tile = stretch.row_group * schedule.rows;
      item.first_step = first_steps[row_group] + stretch.begin;
      item.steps = stretch.end - stretch.begin;
      item.part = parts[row_group]++;
      schedule.items.push_back(item);
    }
    schedule.worker_begin.push_back(static_cast<std::int32_t>(schedule.items.size()));
  }
  std::vector<std::pair<std::int32_t, std::int32_t>> slots(parts.size(), {-1, -1});  // first partial, counter
  for (std::size_t row_group = 0; row_group < parts.size(); ++row_group) {
    if (parts[row_group] < 2) continue;
    slots[row_group] = {schedule.partials, schedule.counters++};
    schedule.partials += parts[row_group];
  }
  for (Item& item : schedule.items) {
    const auto row_group = static_cast<std::size_t>(item.tile / schedule.rows);
    item.parts = parts[row_group];
    std::tie(item.partial, item.counter) = slots[row_group];
  }
}

/// A schedule as a config puts rows together, and nothing else yet.
Schedule without_items(const Config& config) {
  Schedule schedule;
  schedule.rows = config.rows;
  schedule.merge = config.merge;
  schedule.cluster_rows = config.cluster_rows;
  return schedule;
}

void validate(const Spmm& problem, const Config& config) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::invalid_argument, fmt::format("config '{}': {}", to_string(config), why));
  };
  if (config.rows < 1 || config.rows > kMostRows) refuse(fmt::format("rows is 1 to {}", kMostRows));
  if (config.merge != 1 && config.merge != 2 && config.merge != kMostMerged)
    refuse(fmt::format("merge is 1, 2 or {}", kMostMerged));
  if (config.cluster_rows != 1 && config.cluster_rows != 2) refuse("cluster_rows is 1 or 2");
  if (config.merge > 1 && problem.strict_absent)
    refuse("merge fills absent blocks with zeros, which strict_absent excludes; merge=1 would work");
}

}  // namespace

std::span<const std::int32_t> Schedule::rows_of_tile(std::int32_t tile) const {
  return std::span(row_of_place)
      .subspan(static_cast<std::size_t>(tile) * merge, static_cast<std::size_t>(merge));
}

std::span<const Item> Schedule::items_of(std::int32_t worker) const {
  const auto begin = static_cast<std::size_t>(worker_begin[static_cast<std::size_t>(worker)]);
  return std::span(items).subspan(
      begin, static_cast<std::size_t>(worker_begin[static_cast<std::size_t>(worker) + 1]) - begin);
}

std::span<const Step> Schedule::steps_of(const Item& item) const {
  return std::span(steps).subspan(static_cast<std::size_t>(item.first_step),
                                  static_cast<std::size_t>(item.steps));
}

std::int32_t Schedule::worker_of_round(std::int32_t cta, std::int64_t round) const {
  if (round % 2 == 0) return cta;
  const std::int32_t member = cta % cluster_rows;
  return workers() - cluster_rows - (cta - member) + member;
}

double Schedule::balance(std::int64_t rounds) const {
  std::vector<std::int64_t> costs;
  for (std::int32_t worker = 0; worker < workers(); ++worker) costs.push_back(cost(worker));
  const std::int64_t total = std::accumulate(costs.begin(), costs.end(), std::int64_t{0});
  if (total == 0) return 1;
  return static_cast<double>(sparsekiln::most_after_rounds(costs, rounds) * workers()) /
         static_cast<double>(total * rounds);
}

std::int64_t Schedule::cost(std::int32_t worker) const {
  std::int64_t sum = 0;
  for (const Item& item : items_of(worker)) sum += std::max(item.steps, 1);
  return sum;
}

ScheduleFigures figures(std::span<const Step> steps, std::int32_t merge, std::int32_t cluster_rows) {
  ScheduleFigures result;
  result.steps = static_cast<std::int64_t>(steps.size());
  for (const Step& step : steps) {
    const bool loads = (step.flags & kSameInput) == 0;
    if ((step.flags & kAlone) == 0)
      result.team_loads += loads;
    else
      result.loads += loads && step.present();
    const auto present = std::count_if(step.block.begin(), step.block.begin() + merge,
                                       [](std::int32_t block) { return block >= 0; });
    result.one_row_loads += present;
    if (present > 0)
      result.filled += merge - present;
    else
      ++result.without_blocks;
  }
  result.team_loads /= cluster_rows;
  result.loads += result.team_loads;
  return result;
}

ScheduleFigures figures(const Schedule& schedule) {
  ScheduleFigures result = figures(schedule.steps, schedule.merge, schedule.cluster_rows);
  std::int64_t total = 0;
  for (std::int32_t worker = 0; worker < schedule.workers(); ++worker) {
    total += schedule.cost(worker);
    result.largest_cost = std::max(result.largest_cost, schedule.cost(worker));
  }
  if (schedule.workers() > 0) result.mean_cost = static_cast<double>(total) / schedule.workers();
  return result;
}

StepLists list_steps(const Spmm& problem, const Config& config) {
  validate(problem, config);
  Schedule schedule = without_items(config);
  schedule.row_of_place = place_rows(problem.layout, config.rows * config.cluster_rows, config.merge,
                                     searches_row_groups(config));
  std::vector<std::int32_t> begins = add_steps(problem.layout, schedule);
  if (problem.by_columns()) name_blocks_of_weight(problem, schedule);
  return {std::move(schedule.row_of_place), std::move(schedule.steps), std::move(begins)};
}

Schedule share_out(std::span<const std::int32_t> begins, const Spmm& problem, const Target& target,
                   const Config& config, std::int64_t n, std::int64_t rounds) {
  const auto size = static_cast<std::size_t>(config.cluster_rows);
  std::vector<std::int32_t> lengths((begins.size() - 1) / size);
  for (std::size_t team = 0; team < lengths.size(); ++team)
    lengths[team] = begins[team * size + 1] - begins[team * size];
  const std::int32_t teams = most_workers(problem, target, config, n) / config.cluster_rows;
  const RowGroupShares of_teams =
      share_row_groups(RowGroupLengths(std::move(lengths)), teams, steps_worth_a_cut(config), rounds);
  Schedule schedule = without_items(config);
  add_items(schedule, shares_of_row_groups(of_teams, config.cluster_rows), begins);
  return schedule;
}

Schedule make_schedule(const Spmm& problem, const Target& target, const Config& config, std::int64_t n,
                       std::int64_t up_to) {
  StepLists lists = list_steps(problem, config);
  Schedule schedule = share_out(lists.begins, problem, target, config, n,
                                balanced_rounds(problem, config, std::max(n, up_to)));
  schedule.row_of_place = std::move(lists.row_of_place);
  schedule.steps = std::move(lists.steps);
  for (const Item& item : schedule.items)
    if (item.steps > 0)
      schedule.steps[static_cast<std::size_t>(item.first_step)].flags &= ~std::uint32_t{kSameInput};
  return schedule;
}

bool searches_row_groups(const Config& config) { return config.variant == Variant::wgmma_rows; }

std::int64_t steps_worth_a_cut(const Config& config) {
  return config.variant == Variant::wgmma_rows ? kNeverCut : config.split_saves;
}

std::int32_t most_workers(const Spmm& problem, const Target& target, const Config& config, std::int64_t n) {
  const std::int64_t ctas = std::int64_t{target.workers} * std::max(config.split, 1);
  const std::int64_t teams = ctas / (tiles_at_once(problem, config, n) * config.cluster_rows);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(teams, 1, (1 << 20) / config.cluster_rows)) *
         config.cluster_rows;
}

std::int64_t tiles_at_once(const Spmm& problem, const Config& config, std::int64_t n) {
  const std::int64_t tiles = std::max<std::int64_t>(1, problem.batch_tiles(n, config));
  return config.in_flight <= 0 ? tiles : std::min<std::int64_t>(tiles, config.in_flight);
}

std::int64_t rounds_of(const Spmm& problem, const Config& config, std::int64_t n) {
  const std::int64_t at_once = tiles_at_once(problem, config, n);
  return std::max<std::int64_t>((problem.batch_tiles(n, config) + at_once - 1) / at_once, 1);
}

bool changes_places(const Config& config) { return config.variant != Variant::halo; }

std::int64_t balanced_rounds(const Spmm& problem, const Config& config, std::int64_t n) {
  return changes_places(config) ? rounds_of(problem, config, n) : 1;
}

std::int64_t item_bound(const Layout& layout, const Config& config, std::int64_t workers) {
  const auto rounded_up = [](std::int64_t value, std::int64_t divisor) {
    return (value + divisor - 1) / divisor;
  };
  const std::int64_t size = std::max(config.cluster_rows, 1);
  const std::int64_t teams =
      rounded_up(layout.rows(), std::max(config.rows * config.merge * size, std::int64_t{1}));
  const std::int64_t most_cost = layout.blocks() + teams;  // a team without steps counts one
  const std::int64_t useful = std::max(teams, most_cost / kStepsWorthSplitting);
  // Each boundary between workers splits at most one team.
  return size * (teams + std::min(rounded_up(workers, size), useful));
}

std::int64_t counter_bytes(const Spmm& problem, const Plan& plan, const std::vector<Schedule>& schedules) {
  std::int64_t counters = 0;
  for (std::size_t entry = 0; entry < plan.size(); ++entry)
    counters = std::max(
        counters, problem.batch_tiles(plan[entry].up_to, plan[entry].config) * schedules[entry].counters);
  return (4 * counters + 127) / 128 * 128;
}

std::int64_t scheduled_n(Batch batch, const Plan& plan, std::size_t entry) {
  if (!batch.dynamic()) return batch.bound();
  return entry == 0 ? 1 : plan[entry - 1].up_to + 1;
}

std::vector<Schedule> make_schedules(const Spmm& problem, const Target& target, const Plan& plan) {
  std::vector<Schedule> schedules;
  for (std::size_t entry = 0; entry < plan.size(); ++entry)
    schedules.push_back(make_schedule(problem, target, plan[entry].config,
                                      scheduled_n(problem.batch, plan, entry), plan[entry].up_to));
  return schedules;
}

}  // namespace sparsekiln
