#include "autotune/cuda_counts.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace sparsekiln::cuda {
namespace {

/// Block rows that are looked at one by one. Of more, statistics say enough.
constexpr std::int32_t kRowsCounted = 4096;

/// As make_schedule has them.
constexpr std::int64_t kStepsWorthCutting = 4;
constexpr double kBalanced = 1.05;

std::int64_t quotient_up(std::int64_t value, std::int64_t divisor) { return (value + divisor - 1) / divisor; }

std::int64_t rounded(double value) { return std::llround(value); }

/// Chunks of an item of so many steps.
std::int64_t chunks_of(std::int64_t steps, ChunkShape chunk) {
  return quotient_up(steps * chunk.parts * chunk.weights, chunk.blocks);
}

/// Chunks of rows of a mean length: all but the last one of a row are full, and that on average by half.
double expected_chunks(double steps, double items, ChunkShape chunk) {
  const double full = steps * chunk.parts * chunk.weights / chunk.blocks;
  return full + items * (chunk.blocks - 1) / (2.0 * chunk.blocks);
}

std::int64_t length(std::span<const std::int32_t> begins, std::int32_t row) {
  return begins[static_cast<std::size_t>(row) + 1] - begins[static_cast<std::size_t>(row)];
}

/// Steps of the clusters of a schedule, from afar.
struct Steps {
  double clusters = 0;
  double steps = 0;      ///< of all
  double deviation = 0;  ///< of the steps of a cluster
  double longest = 0;
  double empty = 0;  ///< clusters without steps, each of which costs one
  [[nodiscard]] double cost() const { return steps + empty; }
};

/// How `share` in compiler/schedule.cpp would deal out clusters.
struct Shares {
  double workers = 1;
  double largest = 1;
  double cuts = 0;  ///< boundaries between workers that lie within clusters
};

/// The largest share, over the mean, of whole clusters in contiguous runs.
double contiguous(std::span<const std::int32_t> begins, std::int64_t workers, double total) {
  std::int64_t done = 0;
  std::int64_t last = -1;
  std::int64_t share = 0;
  std::int64_t largest = 0;
  const auto whole = static_cast<std::int64_t>(total);
  for (std::int32_t row = 0; row + 1 < static_cast<std::int32_t>(begins.size()); ++row) {
    const std::int64_t cost = std::max<std::int64_t>(length(begins, row), 1);
    const std::int64_t worker = std::min((2 * done + cost) * workers / (2 * whole), workers - 1);
    share = worker == last ? share + cost : cost;
    last = worker;
    largest = std::max(largest, share);
    done += cost;
  }
  return static_cast<double>(largest) * static_cast<double>(workers) / total;
}

/// The largest share of whole clusters, longest first: the mean, and what the last clusters, the short ones,
/// leave over. Where all have as many clusters, long ones are paired with short ones.
double longest_first(const Steps& steps, double workers) {
  const double mean = steps.cost() / workers;
  const double of_cluster = steps.cost() / steps.clusters;
  const double clusters = std::ceil(steps.clusters / workers);
  const bool even = clusters * workers == steps.clusters;
  const double excess = even ? steps.deviation / clusters : clusters * of_cluster - mean;
  const double spread = std::min(steps.deviation, of_cluster);  // short ones fill the gaps
  return std::max(steps.longest, mean + std::max(excess - (even ? 0 : 2 * spread), 0.0)) / mean;
}

Shares shares_of(const Steps& steps, std::span<const std::int32_t> rows, std::int64_t workers) {
  Shares shares;
  if (steps.cost() == 0) return shares;
  const auto useful =
      std::max(steps.clusters, std::floor(steps.cost() / static_cast<double>(kStepsWorthCutting)));
  shares.workers = std::min(static_cast<double>(workers), useful);
  if (!rows.empty())
    shares.largest = contiguous(rows, static_cast<std::int64_t>(shares.workers), steps.cost());
  if (rows.empty() || shares.largest > kBalanced) shares.largest = longest_first(steps, shares.workers);
  if (shares.largest <= kBalanced) return shares;
  // A boundary falls between two clusters as often as one step in so many is a cluster's first.
  shares.cuts = (shares.workers - 1) * (1 - steps.clusters / steps.cost());
  const double mean = steps.cost() / shares.workers;
  shares.largest = std::ceil(mean) / mean;
  return shares;
}

/// Of clusters of `size` rows whose columns are drawn at random, the share of all columns that any of its
/// rows needs. Clustering does better where rows are alike.
double united(double density, std::int32_t size) { return 1 - std::pow(1 - density, size); }

Steps expected_steps(const Layout& layout, const Config& config) {
  const LayoutStatistics& statistics = layout.statistics();
  Steps steps;
  steps.steps = static_cast<double>(statistics.blocks);
  steps.clusters = layout.rows();
  steps.deviation = statistics.row_deviation;
  steps.longest = statistics.longest_row;
  steps.empty = statistics.empty_rows;
  const std::int32_t size = config.rows * config.merge;
  if (size == 1) return steps;
  steps.clusters = static_cast<double>(quotient_up(layout.rows(), size));
  const double one = steps.steps;
  // A step is a column of one output tile.
  const double tiles = static_cast<double>(quotient_up(layout.rows(), config.merge));
  steps.steps = std::min(one, tiles * layout.cols() * united(statistics.density, config.merge));
  const double growth = one == 0 ? 1 : steps.steps / one * size;
  steps.deviation *= growth / std::sqrt(static_cast<double>(size));
  steps.longest = std::min(steps.longest * growth, static_cast<double>(layout.cols()) * config.rows);
  steps.empty = steps.clusters * std::pow(layout.rows() == 0 ? 0 : steps.empty / layout.rows(), size);
  return steps;
}

double expected_loads(const Layout& layout, const Config& config, const Steps& steps) {
  if (config.rows == 1) return steps.steps;
  const double columns = layout.cols() * united(layout.statistics().density, config.rows * config.merge);
  return std::min(steps.steps, steps.clusters * columns);
}

}  // namespace

Counts counts_of(const Schedule& schedule, ChunkShape chunk) {
  const ScheduleFigures found = figures(schedule);
  Counts counts;
  counts.workers = std::max(schedule.workers(), 1);
  counts.items = static_cast<std::int64_t>(schedule.items.size());
  counts.partials = schedule.partials;
  counts.counters = schedule.counters;
  counts.clusters = counts.items - counts.partials + counts.counters;
  counts.loads = found.loads;
  for (const Item& item : schedule.items) counts.chunks += chunks_of(item.steps, chunk);
  counts.largest = found.balance();
  return counts;
}

Counts expected_counts(const Spmm& problem, const Target& target, const Config& config, ChunkShape chunk,
                       std::int64_t n) {
  const Layout& layout = problem.layout;
  const std::int64_t tiles = std::max<std::int64_t>(1, quotient_up(n, config.tile_n));
  const std::int64_t workers =
      std::clamp<std::int64_t>(std::int64_t{target.workers} * config.split / tiles, 1, 1 << 20);
  const bool single = config.rows * config.merge == 1;
  const auto rows = single && layout.rows() <= kRowsCounted ? layout.crow() : std::span<const std::int32_t>();
  const Steps steps = expected_steps(layout, config);
  const Shares shares = shares_of(steps, rows, workers);
  Counts counts;
  counts.workers = std::max<std::int64_t>(1, rounded(shares.workers));
  counts.clusters = rounded(steps.clusters);
  counts.items = counts.clusters + rounded(shares.cuts);
  counts.counters = rounded(std::min(shares.cuts, steps.clusters));
  counts.partials = counts.counters + rounded(shares.cuts);
  counts.loads = rounded(expected_loads(layout, config, steps));
  counts.largest = shares.largest;
  if (shares.cuts == 0 && !rows.empty() && chunk.blocks > 1) {
    for (std::int32_t row = 0; row < layout.rows(); ++row)
      counts.chunks += chunks_of(length(rows, row), chunk);
  } else {
    counts.chunks =
        rounded(expected_chunks(steps.steps, static_cast<double>(counts.items) - steps.empty, chunk));
  }
  return counts;
}

RunCounts counts_of(const BlockRuns& schedule, const Config& config, std::int32_t warps) {
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
  if (total > 0) counts.largest = static_cast<double>(largest * counts.workers) / static_cast<double>(total);
  return counts;
}

RunCounts expected_counts(const Sddmm& gradient, const Target& target, const Config& config,
                          std::int32_t warps) {
  const Layout& layout = gradient.layout;
  const LayoutStatistics& statistics = layout.statistics();
  RunCounts counts;
  if (layout.rows() <= kRowsCounted) {
    const auto crow = layout.crow();
    for (std::int32_t row = 0; row < layout.rows(); ++row) {
      const std::int64_t blocks = length(crow, row);
      counts.runs += quotient_up(blocks, config.rows);
      counts.warps_in +=
          blocks / config.rows * warps + quotient_up(blocks % config.rows * warps, config.rows);
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
