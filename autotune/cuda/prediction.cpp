#include "autotune/cuda/prediction.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <sparsekiln/binary.h>

#include "autotune/cuda/timing.h"
#include "autotune/cuda/work.h"
#include "autotune/quotient_up.h"

namespace sparsekiln::cuda {
namespace {

/// Batch tiles at once, of at most `most`, in as few rounds as that takes, all but the last of as many; 0:
/// all. Tiles that share W are an even number: of an odd one, one would wait for an SM.
std::int32_t in_even_rounds(const Config& config, std::int64_t tiles, std::int64_t most) {
  const std::int64_t units = quotient_up(tiles, config.cluster);
  const std::int64_t at_once =
      quotient_up(units, quotient_up(units, std::max<std::int64_t>(most / config.cluster, 1)));
  return at_once >= units && tiles <= kMostGridRows ? 0 : static_cast<std::int32_t>(at_once * config.cluster);
}

/// Fewer batch tiles at once are not tried, unless there are: each round reads the weight again.
constexpr std::int64_t kLeastInFlight = 4;

/// Rows may also be split only where that saves so many times as many steps.
constexpr std::int32_t kRarely = 4;

/// Workers of a batch tile that are tried where CTAs go from tile to tile.
constexpr std::int32_t kMostWorkersOfTile = 8;

/// A number, half of it, and so on.
std::vector<std::int64_t> halvings(std::int64_t from) {
  std::vector<std::int64_t> numbers{from};
  while (numbers.back() >= 2 * kLeastInFlight) numbers.push_back(quotient_up(numbers.back(), 2));
  return numbers;
}

}  // namespace

Prediction predict(const Spmm& problem, const Target& target, const Config& config, std::int64_t n,
                   const Architecture& figures, RowShares& rows) {
  const LoopCosts costs = loop_costs(problem, target, config);
  return timed(problem, target, config, costs, estimate(problem, target, config, costs, n, rows), figures);
}

Prediction predict(const Sddmm& gradient, const Target& target, const Config& config, std::int64_t n,
                   const Architecture& figures, RowShares&) {
  const SddmmCosts costs = loop_costs(gradient, target, config);
  return timed(gradient, target, config, costs, estimate(gradient, target, config, costs, n), figures);
}

Config with_derived(const Spmm& problem, const Target& target, Config config, std::int64_t n,
                    std::int64_t begin, const Architecture& figures, RowShares& rows) {
  const LoopCosts costs = loop_costs(problem, target, config);
  config.split_saves = static_cast<std::int32_t>(kCombineUs / step_us(problem, target, costs, figures));
  const auto tiles_of = [&](std::int64_t batch) {
    return problem.batch_tiles(std::max<std::int64_t>(batch, 1), config);
  };
  const auto work_of = [&](const Config& one) { return estimate(problem, target, one, costs, n, rows); };
  const auto us = [&](const Config& one, const Work& work) {
    return timed(problem, target, one, costs, work, figures).us;
  };
  // The predicted time has the traffic of parts, which split_saves leaves out.
  if (const Work work = work_of(config); work.partial_bytes > 0) {
    Config rarely = config;
    rarely.split_saves = kRarely * std::max(config.split_saves, 1);
    if (us(rarely, work_of(rarely)) < us(config, work)) config = rarely;
  }
  const std::int64_t tiles = tiles_of(n);
  const std::int64_t most = std::min({tiles, tiles_of(begin), std::int64_t{kMostGridRows}});
  Config best = config;
  double least = std::numeric_limits<double>::infinity();
  // Where CTAs go from tile to tile, also as many tiles as leave each multiprocessor a CTA, of one worker,
  // two and so on: for any number of tiles in a range, so that ranges have the same kernel.
  const bool goes_on = costs.waits.wave > 0;
  const bool of_range = goes_on && problem.batch.dynamic();
  // All tiles of the small batches that kernels with chunks per warp are for fit L2, so that rounds would
  // only make them wait.
  std::vector<std::int64_t> wanted_at_once =
      of_range || costs.chunk_per_warp ? std::vector{most} : halvings(most);
  for (std::int32_t workers = 1; goes_on && workers <= std::min(kMostWorkersOfTile, target.workers);
       ++workers)
    wanted_at_once.push_back(std::min<std::int64_t>(most, target.workers / workers));
  for (const std::int64_t wanted : wanted_at_once) {
    Config other = config;
    other.in_flight = of_range && wanted < tiles ? static_cast<std::int32_t>(wanted)
                                                 : in_even_rounds(config, tiles, wanted);
    if (tiles_at_once(problem, other, n) % config.cluster != 0) other.cluster = 1;
    // Costs do not depend on in_flight, but on whether there is a cluster.
    const double expected = other.cluster == config.cluster
                                ? us(other, work_of(other))
                                : predict(problem, target, other, n, figures, rows).us;
    if (expected < least) best = other;
    least = std::min(least, expected);
  }
  return best;
}

}  // namespace sparsekiln::cuda
