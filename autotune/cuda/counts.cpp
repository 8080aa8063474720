#include "autotune/cuda/counts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "autotune/quotient_up.h"
#include "compiler/even_shares.h"
#include "compiler/row_group_shares.h"

namespace sparsekiln::cuda {
namespace {

/// The most block rows that are counted one by one.
constexpr std::int32_t kRowsCounted = 2048;

std::int64_t rounded(double value) { return std::llround(value); }

/// Chunks of an item of so many steps.
std::int64_t chunks_of(std::int64_t steps, ChunkShape chunk) {
  const std::int64_t blocks = steps * chunk.parts * chunk.weights;
  return chunk.shares * (chunk.blocks == 1 ? blocks : quotient_up(blocks, chunk.blocks));
}

/// Loads of x for items whose steps have these block columns, where one serves so many of them in a row.
template <class InputOf>
std::int64_t loads_of(std::span<const Item> items, std::int32_t columns, InputOf input_of) {
  std::int64_t loads = 0;
  for (const Item& item : items)
    for (std::int32_t step = item.first_step; step < item.first_step + item.steps; ++step)
      loads += step == item.first_step || input_of(step) / columns != input_of(step - 1) / columns ? 1 : 0;
  return loads;
}

/// Chunks of rows of a mean length: all but the last one of a row are full, and that on average by half.
double expected_chunks(double steps, double items, ChunkShape chunk) {
  const double full = steps * chunk.parts * chunk.weights / chunk.blocks;
  return chunk.shares * (full + items * (chunk.blocks - 1) / (2.0 * chunk.blocks));
}

std::int32_t rows_of(std::span<const std::int32_t> begins) {
  return static_cast<std::int32_t>(begins.size()) - 1;
}

std::int64_t length(std::span<const std::int32_t> begins, std::int32_t row) {
  return begins[static_cast<std::size_t>(row) + 1] - begins[static_cast<std::size_t>(row)];
}

/// A row without blocks counts as one step.
std::int64_t cost_of(std::span<const std::int32_t> begins, std::int32_t row) {
  return std::max<std::int64_t>(length(begins, row), 1);
}

/// Steps of the row groups of a schedule, from afar.
struct Steps {
  double row_groups = 0;
  double steps = 0;      ///< of all
  double deviation = 0;  ///< of the steps of a row group
  double longest = 0;
  double empty = 0;  ///< row groups without steps, each of which costs one
  [[nodiscard]] double cost() const { return steps + empty; }
};

/// How share_row_groups (compiler/row_group_shares.h) would deal out row groups.
struct Shares {
  std::int64_t workers = 1;
  double largest = 1;
  double splits = 0;      ///< boundaries between workers that lie within row groups
  double row_groups = 0;  ///< that are split
};

/// Workers that have something to do.
std::int64_t useful_workers(const Steps& steps, std::int64_t workers) {
  const auto worth = static_cast<std::int64_t>(steps.cost()) / kStepsWorthSplitting;
  return std::min(workers, std::max(rounded(steps.row_groups), worth));
}

/// The largest share of row groups that are not known one by one, longest first. Where all workers have as
/// many, long ones are paired with short ones; else one more, as short as they come, remains. A CTA that has
/// most in every other one of `rounds` has the least share in the others, which is below the mean by as much,
/// unless more than half of the workers have one row group more.
double expected_longest_first(const Steps& steps, double workers, std::int64_t rounds) {
  const double mean = steps.cost() / workers;
  const double of_row_group = steps.cost() / steps.row_groups;
  const double row_groups = std::ceil(steps.row_groups / workers);
  const double fewer = row_groups * workers - steps.row_groups;  // workers with one row group less
  const double spread = std::min(steps.deviation, of_row_group);
  const double excess =
      fewer == 0 ? steps.deviation / (2 * row_groups) : row_groups * of_row_group - mean - 2 * spread;
  const double most = std::max(steps.longest, mean + std::max(excess, 0.0));
  const double least = fewer == 0 || 2 * fewer >= workers ? 2 * mean - most : most;
  const double share_of_most = static_cast<double>((rounds + 1) / 2) / static_cast<double>(rounds);
  return std::max(share_of_most * most + (1 - share_of_most) * least, mean) / mean;
}

/// `rows`: null where these are not the row groups, or are not known. `saves`: Config::split_saves.
Shares shares_of(const Steps& steps, RowShares* rows, std::int64_t workers, std::int64_t saves,
                 std::int64_t rounds) {
  Shares shares;
  if (steps.cost() == 0) return shares;
  shares.workers = useful_workers(steps, workers);
  const auto of_workers = static_cast<double>(shares.workers);
  const double mean = steps.cost() / of_workers;
  const double most = std::max(kBalanced / 100.0, 1 + static_cast<double>(saves) / mean + 1e-9);
  shares.largest = rows == nullptr ? expected_longest_first(steps, of_workers, rounds)
                                   : rows->largest(shares.workers, rounds, most);
  if (shares.largest <= most) return shares;
  shares.largest = std::ceil(mean) / mean;
  // A boundary falls between two row groups as often as one step in so many is a row group's first.
  shares.splits = (of_workers - 1) * (1 - steps.row_groups / steps.cost());
  shares.row_groups = std::min(shares.splits, steps.row_groups);
  return shares;
}

/// The share of all columns that any row of a row group needs, where the columns of its `size` rows are drawn
/// at random. The search does better where rows are alike.
double united(double density, std::int32_t size) { return 1 - std::pow(1 - density, size); }

Steps expected_steps(const Layout& layout, const Config& config) {
  const LayoutStatistics& statistics = layout.statistics();
  Steps steps;
  steps.steps = static_cast<double>(statistics.blocks);
  steps.row_groups = layout.rows();
  steps.deviation = statistics.row_deviation;
  steps.longest = statistics.longest_row;
  steps.empty = statistics.empty_rows;
  const std::int32_t size = config.rows * config.merge;
  if (size == 1 || layout.rows() == 0) return steps;
  steps.row_groups = static_cast<double>(quotient_up(layout.rows(), size));
  const double one = steps.steps;
  // A step is a column of one output tile.
  const double tiles = static_cast<double>(quotient_up(layout.rows(), config.merge));
  steps.steps = std::min(one, tiles * layout.cols() * united(statistics.density, config.merge));
  const double growth = one == 0 ? 1 : steps.steps / one * size;
  steps.deviation *= growth / std::sqrt(static_cast<double>(size));
  // The fullest rows are seldom in one row group.
  const double most = steps.steps / steps.row_groups + 2.5 * steps.deviation;
  steps.longest = std::min({steps.longest * growth, most, static_cast<double>(layout.cols()) * config.rows});
  steps.empty = steps.row_groups * std::pow(steps.empty / layout.rows(), size);
  return steps;
}

double expected_loads(const Layout& layout, const Config& config, const Steps& steps, ChunkShape chunk) {
  if (config.rows == 1) return steps.steps / chunk.columns;
  // The blocks of a line are there or not each by itself; the taps of a block all are.
  const std::int32_t alone = chunk.of_tiles ? chunk.columns : 1;
  const double lines = static_cast<double>(quotient_up(layout.cols(), chunk.columns)) *
                       united(layout.statistics().density, config.rows * config.merge * alone);
  return std::min(steps.steps, steps.row_groups * lines);
}

}  // namespace

RowShares::RowShares(const Layout& layout) : layout_(layout) {
  if (layout_.rows() == 0 || layout_.rows() > kRowsCounted) return;
  begins_ = layout_.crow();
  for (std::int32_t row = 0; row < layout_.rows(); ++row) {
    costs_.push_back(cost_of(begins_, row));
    total_ += costs_.back();
  }
  const auto [shortest, longest] = std::minmax_element(costs_.begin(), costs_.end());
  shortest_ = *shortest;
  longest_ = *longest;
}

double RowShares::largest(std::int64_t workers, std::int64_t rounds, double most) {
  const auto [found, is_new] = orders_.try_emplace(workers);
  Orders& orders = found->second;
  if (is_new) {  // one worker has the longest row, and one as many rows as the mean, rounded up
    const std::int64_t least = std::max(longest_, quotient_up(rows_of(begins_), workers) * shortest_);
    orders.least = static_cast<double>(least * workers) / static_cast<double>(total_);
  }
  // In every other round that worker's CTA may have nothing.
  const double least = orders.least * static_cast<double>((rounds + 1) / 2) / static_cast<double>(rounds);
  if (least > most) return least;
  const auto of_mean = [&](const std::vector<std::int64_t>& costs, std::int64_t after) {
    return static_cast<double>(most_after_rounds(costs, after) * workers) /
           static_cast<double>(total_ * after);
  };
  if (!orders.contiguous) orders.contiguous = contiguous(workers);
  if (of_mean(*orders.contiguous, 1) <= kBalanced / 100.0) return of_mean(*orders.contiguous, rounds);
  if (!orders.any) orders.any = in_any_order(workers);
  return of_mean(*orders.any, rounds);
}

/// A row is its worker's in whose share of the steps its middle lies.
std::vector<std::int64_t> RowShares::contiguous(std::int64_t workers) const {
  std::vector<std::int64_t> costs(static_cast<std::size_t>(workers), 0);
  std::int64_t done = 0;
  std::int64_t worker = 0;
  for (std::int32_t row = 0; row < rows_of(begins_); ++row) {
    const std::int64_t cost = cost_of(begins_, row);
    while (worker + 1 < workers && (2 * done + cost) * workers >= 2 * total_ * (worker + 1)) ++worker;
    costs[static_cast<std::size_t>(worker)] += cost;
    done += cost;
  }
  std::sort(costs.begin(), costs.end(), std::greater<>{});
  return costs;
}

std::vector<std::int64_t> RowShares::in_any_order(std::int64_t workers) const {
  std::vector<std::int64_t> costs;
  for (const auto& rows : even_shares(costs_, static_cast<std::int32_t>(workers)))
    costs.push_back(std::accumulate(
        rows.begin(), rows.end(), std::int64_t{0},
        [&](std::int64_t sum, std::int32_t row) { return sum + costs_[static_cast<std::size_t>(row)]; }));
  std::sort(costs.begin(), costs.end(), std::greater<>{});
  return costs;
}

const RowShares::Parts& RowShares::split(std::int64_t workers, ChunkShape chunk) {
  const auto [found, is_new] =
      splits_.try_emplace({workers, chunk.blocks, chunk.parts, chunk.weights, chunk.shares});
  Parts& parts = found->second;
  if (!is_new) return parts;
  std::int64_t first = 0;
  std::int64_t boundary = 0;  // the next one is at total · boundary / workers, rounded down
  std::int64_t stop = 0;
  for (std::int32_t row = 0; row < rows_of(begins_); ++row) {
    const std::int64_t end = first + cost_of(begins_, row);
    while (stop <= first) stop = total_ * ++boundary / workers;
    if (stop >= end) {
      ++parts.wholes;
      parts.chunks += chunks_of(length(begins_, row), chunk);
    } else {
      for (std::int64_t done = first; done < end;) {
        const std::int64_t upto = std::min(end, stop);
        ++parts.partials;
        parts.chunks += chunks_of(upto - done, chunk);
        done = upto;
        while (stop <= done) stop = total_ * ++boundary / workers;
      }
    }
    first = end;
  }
  return parts;
}

const RowShares::Listed& RowShares::listed(const Spmm& problem, const Config& config) {
  const std::array key{config.rows, config.merge, config.cluster_rows,
                       std::int32_t{searches_row_groups(config)}};
  if (const auto found = lists_.find(key); found != lists_.end()) return found->second;
  StepLists lists = list_steps(problem, config);
  Listed listed{std::move(lists.begins), {}, {}, {}, figures(lists.steps, config.merge, config.cluster_rows)};
  for (const Step& step : lists.steps) {
    listed.inputs.push_back(step.input());
    listed.flags.push_back(step.flags);
    listed.present.push_back(step.present());
  }
  return lists_.emplace(key, std::move(listed)).first->second;
}

const Counts& RowShares::scheduled(const Spmm& problem, const Target& target, const Config& config,
                                   ChunkShape chunk, std::int64_t n) {
  const std::int64_t rounds = balanced_rounds(problem, config, n);
  const std::array key{config.rows,
                       config.merge,
                       config.cluster_rows,
                       most_workers(problem, target, config, n),
                       steps_worth_a_cut(config) == kNeverCut ? -1 : config.split_saves,
                       chunk.blocks,
                       chunk.parts,
                       chunk.weights,
                       chunk.shares,
                       chunk.columns,
                       std::int32_t{searches_row_groups(config)},
                       static_cast<std::int32_t>(rounds)};
  if (const auto found = schedules_.find(key); found != schedules_.end()) return found->second;
  const Listed& of_row_groups = listed(problem, config);
  const Schedule shared = share_out(of_row_groups.begins, problem, target, config, n, rounds);
  ChunkShape of_one_column = chunk;  // it has no steps, whose loads are counted below
  of_one_column.columns = 1;
  Counts counts = counts_of(shared, of_one_column, rounds);
  counts.without_blocks = chunks_of(of_row_groups.figures.without_blocks, chunk);
  // A part that begins amid the steps of a column loads x again.
  std::int64_t again = 0;
  std::int64_t again_for_team = 0;
  for (const Item& item : shared.items) {
    const auto step = static_cast<std::size_t>(item.first_step);
    if (item.steps == 0 || (of_row_groups.flags[step] & kSameInput) == 0) continue;
    if ((of_row_groups.flags[step] & kAlone) == 0)
      ++again_for_team;
    else
      again += of_row_groups.present[step];
  }
  again_for_team /= config.cluster_rows;
  counts.loads = of_row_groups.figures.loads + again + again_for_team;
  counts.team_loads = of_row_groups.figures.team_loads + again_for_team;
  if (chunk.columns > 1)
    counts.loads = counts.team_loads = loads_of(shared.items, chunk.columns, [&](std::int32_t step) {
      return of_row_groups.inputs[static_cast<std::size_t>(step)];
    });
  return schedules_.emplace(key, counts).first->second;
}

Counts counts_of(const Schedule& schedule, ChunkShape chunk, std::int64_t rounds) {
  const ScheduleFigures found = figures(schedule);
  Counts counts;
  counts.workers = std::max(schedule.workers(), 1);
  counts.items = static_cast<std::int64_t>(schedule.items.size());
  counts.partials = schedule.partials;
  counts.counters = schedule.counters;
  counts.row_groups = counts.items - counts.partials + counts.counters;
  counts.loads =
      chunk.columns == 1 ? found.loads : loads_of(schedule.items, chunk.columns, [&](std::int32_t step) {
        return schedule.steps[static_cast<std::size_t>(step)].input();
      });
  counts.team_loads = chunk.columns == 1 ? found.team_loads : counts.loads;
  for (const Item& item : schedule.items) counts.chunks += chunks_of(item.steps, chunk);
  counts.without_blocks = chunks_of(found.without_blocks, chunk);
  counts.largest = schedule.balance(rounds);
  return counts;
}

Counts expected_counts(const Spmm& problem, const Target& target, const Config& config, ChunkShape chunk,
                       std::int64_t n, RowShares& rows) {
  const bool put_together = config.rows * config.merge > 1;
  if (config.cluster_rows > 1 || (put_together && rows.are_scheduled()))
    return rows.scheduled(problem, target, config, chunk, n);
  const Layout& layout = problem.layout;
  const std::int64_t workers = most_workers(problem, target, config, n);
  const bool known = config.rows * config.merge == 1 && rows.known();
  const Steps steps = expected_steps(layout, config);
  const Shares shares = shares_of(steps, known ? &rows : nullptr, workers, steps_worth_a_cut(config),
                                  balanced_rounds(problem, config, n));
  Counts counts;
  counts.workers = shares.workers;
  counts.row_groups = rounded(steps.row_groups);
  counts.loads = counts.team_loads = rounded(expected_loads(layout, config, steps, chunk));
  counts.largest = shares.largest;
  if (!known) {
    counts.items = counts.row_groups + rounded(shares.splits);
    counts.counters = rounded(shares.row_groups);
    counts.partials = counts.counters + rounded(shares.splits);
    counts.chunks =
        rounded(expected_chunks(steps.steps, static_cast<double>(counts.items) - steps.empty, chunk));
    return counts;
  }
  const RowShares::Parts& parts = rows.split(shares.splits == 0 ? 1 : shares.workers, chunk);
  counts.chunks = parts.chunks;
  counts.partials = parts.partials;
  counts.items = parts.wholes + parts.partials;
  counts.counters = counts.row_groups - parts.wholes;
  return counts;
}

namespace {

/// `all` of workers, of which one has `largest`: that one's over the mean.
double over_mean(std::int64_t largest, std::int64_t all, std::int64_t workers) {
  return all == 0 ? 1 : static_cast<double>(largest * workers) / static_cast<double>(all);
}

RunCounts counts_of_groups(const BlockRuns& schedule) {
  RunCounts counts;
  counts.workers = std::max(schedule.workers(), 1);
  counts.runs = counts.warps_in = schedule.items();
  for (const BlockGroup& group : schedule.groups) {
    counts.out_tiles += static_cast<std::int64_t>(group.outs.size());
    counts.in_tiles += static_cast<std::int64_t>(group.ins.size());
  }
  std::int64_t most_groups = 0;
  std::int64_t most_tiles = 0;
  for (std::int32_t worker = 0; worker < schedule.workers(); ++worker) {
    std::int64_t tiles = 0;
    for (const BlockGroup& group : schedule.groups_of(worker)) tiles += cost_of(group);
    most_tiles = std::max(most_tiles, tiles);
    most_groups = std::max(most_groups, static_cast<std::int64_t>(schedule.groups_of(worker).size()));
  }
  counts.largest = over_mean(most_groups, counts.runs, counts.workers);
  counts.largest_tiles = over_mean(most_tiles, counts.out_tiles + counts.in_tiles, counts.workers);
  return counts;
}

/// Groups of a layout that is too large to make them: full ones, with as many rows as their pieces have in
/// the order of the layout, and a column for each piece.
RunCounts expected_groups(const Sddmm& gradient, const Target& target, const Config& config) {
  const GroupShape shape = group_shape(gradient, config);
  const std::int64_t pieces = pieces_of(gradient, shape);
  const std::int64_t room =
      std::min<std::int64_t>(config.rows, (shape.place_bytes - shape.out_bytes) / shape.in_bytes);
  const std::int64_t ctas = std::int64_t{target.workers} * config.split;
  RunCounts counts;
  counts.runs = counts.warps_in = quotient_up(quotient_up(pieces, room), ctas) * ctas;
  counts.workers = ctas;
  const double of_row =
      static_cast<double>(pieces) / static_cast<double>(gradient.layout.rows() * shape.down(gradient.block));
  counts.in_tiles = pieces;
  counts.out_tiles =
      rounded(static_cast<double>(counts.runs) + static_cast<double>(pieces) / std::max(of_row, 1.0));
  return counts;
}

}  // namespace

RunCounts counts_of(const BlockRuns& schedule, const Config& config, std::int32_t warps) {
  if (groups_blocks(config)) return counts_of_groups(schedule);
  RunCounts counts;
  counts.workers = std::max(schedule.workers(), 1);
  counts.runs = static_cast<std::int64_t>(schedule.runs.size());
  std::int64_t total = 0;
  std::int64_t largest = 0;
  for (std::int32_t worker = 0; worker < schedule.workers(); ++worker) {
    std::int64_t cost = 0;
    for (const BlockRun& run : schedule.runs_of(worker)) {
      counts.warps_in += quotient_up(std::int64_t{run.blocks} * warps, config.rows);
      cost += cost_of(run);
    }
    total += cost;
    largest = std::max(largest, cost);
  }
  counts.largest = over_mean(largest, total, counts.workers);
  return counts;
}

RunCounts expected_counts(const Sddmm& gradient, const Target& target, const Config& config,
                          std::int32_t warps) {
  if (groups_blocks(config))
    return pieces_of(gradient, group_shape(gradient, config)) > kMostScheduled
               ? expected_groups(gradient, target, config)
               : counts_of_groups(make_block_runs(gradient, target, config));
  const Layout& layout = gradient.layout;
  const LayoutStatistics& statistics = layout.statistics();
  RunCounts counts;
  if (layout.rows() <= kRowsCounted) {
    const auto crow = layout.crow();
    const int shift = std::countr_zero(static_cast<std::uint32_t>(config.rows));  // a power of two
    for (std::int32_t row = 0; row < layout.rows(); ++row) {
      const std::int64_t blocks = length(crow, row);
      const std::int64_t left = blocks & (config.rows - 1);
      counts.runs += (blocks + config.rows - 1) >> shift;
      counts.warps_in += (blocks >> shift) * warps + ((left * warps + config.rows - 1) >> shift);
    }
  } else {
    const double rows = layout.rows() - statistics.empty_rows;
    const double left = rows * (config.rows - 1) / (2.0 * config.rows);  // runs that lack half
    counts.runs = rounded(static_cast<double>(statistics.blocks) / config.rows + left);
    counts.warps_in = rounded(static_cast<double>(statistics.blocks) * warps / config.rows +
                              rows * (warps - 1) / (2.0 * warps));
  }
  if (gradient.bias_gradient) counts.runs += statistics.empty_rows;
  counts.workers = std::clamp<std::int64_t>(counts.runs, 1, std::int64_t{target.workers} * config.split);
  const double total = static_cast<double>(statistics.blocks + counts.runs);
  if (total == 0) return counts;
  // Longest first: the mean, or a worker that has a run more than others.
  const double mean = total / static_cast<double>(counts.workers);
  const double of_run = total / static_cast<double>(counts.runs);
  counts.largest =
      std::max(mean, static_cast<double>(quotient_up(counts.runs, counts.workers)) * of_run) / mean;
  return counts;
}

}  // namespace sparsekiln::cuda
