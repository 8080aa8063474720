#include "autotune/cuda_prediction.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <sparsekiln/binary.h>

#include "autotune/architecture.h"
#include "autotune/batch_ranges.h"
#include "autotune/cuda_work.h"
#include "compiler/cuda/family.h"
#include "compiler/cuda/multiprocessor.h"
#include "compiler/element.h"

namespace sparsekiln::cuda {
namespace {

/// Warps that a scheduler needs to issue in every cycle: one alone waits for its own results in between.
constexpr double kWarpsToFill = 2;
constexpr std::int32_t kRegisterFile = 65536;
/// The share of the shorter times that adds to the longest one: resources are not in use at the same time
/// throughout. For a kernel with one stage, whose CTAs either wait or multiply, it is half.
constexpr double kOverlapLost = 0.1;
constexpr double kOverlapLostOfOneStage = 0.5;

/// Microseconds, by Bound.
using Times = std::array<double, 5>;

double& of(Times& times, Bound bound) { return times[static_cast<std::size_t>(bound)]; }

/// CTAs that a multiprocessor holds at once, its registers considered.
std::int32_t resident(const Target& target, const CtaCosts& costs) {
  const std::int32_t by_registers = kRegisterFile / (costs.registers * costs.threads);
  return std::max(1, std::min(by_registers, resident_ctas(target, costs.threads, costs.shared_bytes)));
}

/// What one CTA does, in the units of its multiprocessor's time.
struct Share {
  double products = 0;      ///< cycles of its tensor cores, or of its CUDA cores
  double instructions = 0;  ///< of warps
  double shared_bytes = 0;
  double arriving_bytes = 0;
  double chunks = 0;
  double memory_us = 0;  ///< that a chunk takes to come
};

/// Chunks of a CTA that are in flight at once. With one stage nothing is done while it is filled.
double chunks_ahead(const CtaCosts& costs, const Config& config) {
  const double ahead = config.stages == 1 ? 0.5 : config.stages - 1;
  return costs.chunk_per_warp ? ahead * config.warps : ahead;
}

/// The time of `ctas` CTAs on one multiprocessor, where they run at the same time.
Times wave(const Architecture& figures, const CtaCosts& costs, const Config& config, const Share& share,
           double ctas) {
  const double cycle = 1e-3 / figures.clock_ghz;
  const double warps = ctas * costs.threads / 32;
  const double issued = Architecture::kIssued * std::min(1.0, warps / (Architecture::kIssued * kWarpsToFill));
  Times times{};
  of(times, Bound::arithmetic) = ctas * share.products * cycle;
  of(times, Bound::instructions) =
      ctas * std::max(share.instructions / issued, share.shared_bytes / Architecture::kSharedBytes) * cycle;
  of(times, Bound::cache) = ctas * share.arriving_bytes / Architecture::kCacheBytes * cycle;
  of(times, Bound::latency) = share.chunks / chunks_ahead(costs, config) * share.memory_us;
  return times;
}

/// Cycles of a tensor-core instruction: so many tiles of 16 × 8 × 32 bytes of k, or half of it where m16n8k16
/// does not exist.
/// On sm_90 to sm_110 ptxas makes mma.sync of 8-bit floats of two instructions for f16; there only wgmma, or
/// what came after it, multiplies them.
double cycles_of_product(const Computation& problem, const Target& target, const CtaCosts& costs,
                         const Architecture& figures) {
  if (problem.ieee()) return 0;
  const double products =
      target.compute_capability() < 80 ? 1024 : 4096 / static_cast<double>(size_of(problem.dtype));
  const bool halved = is_float8(problem.dtype) && target.compute_capability() >= 90 &&
                      target.compute_capability() < 120 && !costs.full_rate;
  return (halved ? 2 : 1) * products * costs.product_tiles /
         (figures.products(problem.dtype, problem.math) * (costs.full_rate ? 1 : figures.mma_share));
}

/// Loads of tables, one after the other, before the first copy of a CTA can start: its worker's first chunk,
/// and the step of that.
double table_us(const Config& config) {
  return config.table == TableForm::unrolled ? 0 : 2 * Architecture::kCacheUs;
}

Prediction timed(const Computation& problem, const Target& target, const Config& config,
                 const CtaCosts& costs, const Work& work, const Architecture& figures) {
  const double ctas = static_cast<double>(work.ctas);
  const auto of_cta = [&](std::int64_t all) { return static_cast<double>(all) / ctas * work.largest; };
  const double memory_bytes =
      static_cast<double>(work.memory_bytes) + bytes_read_again(work, figures.cache_bytes());
  const double from_memory = memory_bytes / static_cast<double>(std::max<std::int64_t>(work.global_bytes, 1));
  const double latency = Architecture::kCacheUs +
                         std::min(from_memory, 1.0) * (Architecture::kMemoryUs - Architecture::kCacheUs);
  const Share share{of_cta(work.fmas) / figures.lanes +
                        of_cta(work.products_in_time) * cycles_of_product(problem, target, costs, figures),
                    of_cta(work.instructions + work.products),
                    of_cta(work.shared_bytes),
                    of_cta(work.global_bytes + work.multicast_bytes),
                    of_cta(work.chunks),
                    latency};
  const std::int32_t room = resident(target, costs);
  const double at_once = static_cast<double>(target.workers) * room;
  const double waves = std::floor(ctas / at_once);
  const double rest = std::ceil((ctas - waves * at_once) / target.workers);  // CTAs a multiprocessor
  Times times{};
  const auto add = [&](double count, double together) {
    const Times one = wave(figures, costs, config, share, together);
    for (std::size_t i = 0; i < times.size(); ++i) times[i] += count * one[i];
  };
  if (waves > 0) add(waves, room);
  if (rest > 0) add(1, rest);
  of(times, Bound::memory) = memory_bytes / figures.memory_gbytes * 1e-3;
  of(times, Bound::cache) =
      std::max(of(times, Bound::cache), static_cast<double>(work.global_bytes) / figures.cache_gbytes * 1e-3);
  const auto longest = std::max_element(times.begin(), times.end());
  double others = -*longest;
  for (const double time : times) others += time;
  // A wave begins with a look at the tables and a first copy, and ends with a store.
  const double launch =
      overlaps_launches(problem, target) ? Architecture::kOverlappedLaunchUs : Architecture::kLaunchUs;
  const double begin = work.kernels * launch + (work.combines ? Architecture::kCombineUs : 0) +
                       (2 * Architecture::kMemoryUs + table_us(config)) * (waves + (rest > 0 ? 1 : 0));
  Prediction prediction;
  prediction.us = begin + *longest + (config.stages == 1 ? kOverlapLostOfOneStage : kOverlapLost) * others;
  prediction.bound =
      begin > *longest ? Bound::latency : static_cast<Bound>(std::distance(times.begin(), longest));
  return prediction;
}

/// The share of L2 that the x of the batch tiles at once may take: it is read again and again while the
/// weight and the results pass.
constexpr double kShareOfX = 0.3;

/// Batch tiles at once whose x fits in so many bytes, in as few rounds; 0: all. Not so few that rows would
/// have to be split to keep all CTAs busy; and a range of batches has no more of them than its smallest n,
/// for which it is scheduled.
std::int32_t tiles_in_share(const Spmm& problem, const Target& target, const Config& config, std::int64_t n,
                            double bytes) {
  const auto tiles_of = [&](std::int64_t batch) {
    return problem.batch_tiles(std::max<std::int64_t>(batch, 1), config);
  };
  const double activations = problem.derivative == Activation::none ? 1 : 2;
  const double of_tile = activations * config.tile_n * static_cast<double>(problem.in_features()) *
                         static_cast<double>(size_of(problem.dtype));
  const auto fitting = static_cast<std::int64_t>(std::max(1.0, bytes / std::max(of_tile, 1.0)));
  const auto rounded_up = [](std::int64_t value, std::int64_t divisor) {
    return (value + divisor - 1) / divisor;
  };
  const std::int64_t clusters =
      std::max<std::int64_t>(rounded_up(problem.layout.rows(), config.rows * config.merge), 1);
  const std::int64_t busy = rounded_up(std::int64_t{target.workers} * config.split, clusters);
  const std::int64_t most = std::min(
      {std::max(fitting, busy),
       tiles_of(range_begin(problem.batch, n, problem.correlation ? BatchOf::images : BatchOf::rows)),
       std::int64_t{kMostGridRows}});
  const std::int64_t tiles = tiles_of(n);
  if (tiles <= most) return 0;
  // A fixed batch is divided evenly over the rounds; of a range, the smallest n has one.
  const bool ranges = problem.batch.dynamic();
  return static_cast<std::int32_t>(ranges ? most : rounded_up(tiles, rounded_up(tiles, most)));
}

/// What a step takes a CTA that has its multiprocessor to itself, as the last one has.
double step_us(const Spmm& problem, const Target& target, const Config& config, const Architecture& figures) {
  const LoopCosts costs = loop_costs(problem, target, config);
  const double chunks = static_cast<double>(costs.shape.parts) * costs.shape.weights / costs.shape.blocks;
  const std::int64_t rows =
      config.tile_n + std::int64_t{problem.block.out} * config.merge * problem.weights();
  const auto of_step = [&](auto of_chunk) { return chunks * static_cast<double>(of_chunk); };
  const Share share{
      of_step(costs.chunk_fmas) / figures.lanes +
          of_step(costs.chunk_products) * cycles_of_product(problem, target, costs, figures),
      of_step(costs.chunk + costs.load + static_cast<double>(costs.chunk_products)),
      of_step(costs.chunk_shared_bytes),
      static_cast<double>(rows * problem.block.in) * static_cast<double>(size_of(problem.dtype)),
      chunks,
      (Architecture::kCacheUs + Architecture::kMemoryUs) / 2};
  const Times times = wave(figures, costs, config, share, 1);
  return *std::max_element(times.begin(), times.end());
}

/// So many tiles at once that all rounds have as many, but for the last, and no round more than `most`.
std::int32_t even_rounds(std::int64_t tiles, std::int64_t most) {
  const std::int64_t rounds = (tiles + most - 1) / most;
  return static_cast<std::int32_t>((tiles + rounds - 1) / rounds);
}

/// An SM has one CTA, so that where the batch is fixed, other numbers of batch tiles at once may leave whole
/// block rows for each worker: that may be worth more than x's share of L2. CTAs that share W are two of
/// them; of an odd number, one would wait for an SM.
Config in_clusters(const Spmm& problem, const Target& target, const Config& config, std::int64_t n,
                   const Architecture& figures) {
  RowShares rows(problem.layout);
  const std::int64_t tiles = problem.batch_tiles(n, config);
  const auto with_tiles = [&](std::int32_t in_flight) {
    Config other = config;
    other.in_flight = config.cluster > 1 && in_flight > 1 ? in_flight - in_flight % 2 : in_flight;
    if (tiles_at_once(problem, other, n) % 2 != 0) other.cluster = 1;
    return other;
  };
  // Without sharing x, of which schedules would have to be made: a rough answer for teams, which are half as
  // many as these workers.
  const auto us_of = [&](Config other) {
    other.cluster_rows = 1;
    return predict(problem, target, other, n, figures, rows).us;
  };
  Config best = with_tiles(config.in_flight);
  if (problem.batch.dynamic()) return best;
  double least = us_of(best);
  const std::int64_t most = std::min<std::int64_t>(target.workers / config.cluster_rows, tiles - 1);
  for (std::int64_t wanted = 4; wanted <= most; wanted *= 2) {
    // Even numbers, that clusters of two may have: half as many pairs.
    const Config other = with_tiles(config.cluster > 1 ? 2 * even_rounds((tiles + 1) / 2, wanted / 2)
                                                       : even_rounds(tiles, wanted));
    const double us = us_of(other);
    if (us >= least) continue;
    least = us;
    best = other;
  }
  return best;
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
                    const Architecture& figures) {
  config.in_flight = tiles_in_share(problem, target, config, n, kShareOfX * figures.cache_bytes());
  config.split_saves =
      static_cast<std::int32_t>(Architecture::kCombineUs / step_us(problem, target, config, figures));
  return config.variant == Variant::wgmma ? in_clusters(problem, target, config, n, figures) : config;
}

}  // namespace sparsekiln::cuda
