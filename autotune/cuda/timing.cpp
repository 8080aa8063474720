#include "autotune/cuda/timing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>

#include <sparsekiln/binary.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/multiprocessor.h"
#include "compiler/element.h"

// The numbers without another source were fitted to what an H100 took for the configs of
// bench/measured/h100-2026-11-27.jsonl, one for each part and none for a workload. bench/model_accuracy.py
// says how near they come.

namespace sparsekiln::cuda {
namespace {

/// Waits::overlap_lost of a kernel with one stage, whose CTAs either wait or multiply (an estimate).
constexpr double kOverlapLostOfOneStage = 0.5;
/// The part of CTAs' rings that is there as well, as it comes.
constexpr double kRingsInCache = 0.25;
/// Bytes of x that lie together take a multiprocessor as long as so many, if they are fewer.
constexpr double kGathered = 64;
/// SASS instructions for each of PTX's.
constexpr double kAssembled = 0.76;
/// Writing a kilobyte of an item's results, microseconds of a CTA.
constexpr double kItemKilobyteUs = 0.0077;
/// Kilobytes of partial sums in a microsecond: of a multiprocessor, and of a thread.
constexpr double kPartKilobytes = 18.1;
constexpr double kPartKilobytesOfThread = 0.235;

constexpr std::int32_t kClusterOfFour = 4;

/// Microseconds, by Bound.
using Times = std::array<double, 5>;

double& of(Times& times, Bound bound) { return times[static_cast<std::size_t>(bound)]; }

double kilobytes(double bytes) { return bytes * 1e-3; }

/// Multiprocessors that CTAs of a config can be on at once. Clusters of two have all of them, since these
/// come in pairs.
std::int32_t usable(const Target& target, const Config& config, const Architecture& figures) {
  const std::int32_t cluster = config.cluster * config.cluster_rows;
  if (cluster != kClusterOfFour || figures.clusters_of_four == 0) return target.workers;
  return std::min(target.workers, cluster * figures.clusters_of_four);
}

/// Multiplications of 16 × 8 sums and 32 bytes of k.
double products_of_tile(const Computation& problem) {
  return 4096 / static_cast<double>(size_of(problem.dtype));
}

/// Cycles of a tensor-core instruction: so many tiles of 16 × 8 × 32 bytes of k, or half of it where m16n8k16
/// does not exist.
/// On sm_90 to sm_110 ptxas makes mma.sync of 8-bit floats of two instructions for f16; there only wgmma, or
/// what came after it, multiplies them.
double cycles_of_product(const Computation& problem, const Target& target, const CtaCosts& costs,
                         const Architecture& figures) {
  if (problem.ieee()) return 0;
  const double products = target.compute_capability() < 80 ? 1024 : products_of_tile(problem);
  const bool halved = is_float8(problem.dtype) && target.compute_capability() >= 90 &&
                      target.compute_capability() < 120 && !costs.full_rate;
  return (halved ? 2 : 1) * products * costs.product_tiles /
         (figures.products(problem.dtype, problem.math) * Architecture::kTensorReached *
          (costs.full_rate ? 1 : figures.mma_share));
}

/// Bytes that a warp reads after another warp of its CTA take this share of the time of bytes from L2. Fitted
/// to the kernels of bench/measured/h100-2026-11-27.structures.json with tile_out=16 and 16 or 64 batch rows.
constexpr double kRepeated = 0.5;

/// Bytes that come into multiprocessors, pieces that are shorter than what is fetched at once counting as
/// that.
double arriving_bytes(const Work& work) {
  const auto loads = static_cast<double>(work.again.loads);
  const double fetched =
      work.piece_bytes == 0 ? 1 : std::max(1.0, kGathered / static_cast<double>(work.piece_bytes));
  return static_cast<double>(work.global_bytes - work.partial_bytes) + loads * (fetched - 1) -
         (1 - kRepeated) * static_cast<double>(work.repeated_bytes);
}

/// What the instructions of a warp that does its share of so many take a CTA.
double issue_us(const CtaCosts& costs, double instructions, const Architecture& figures) {
  return instructions / (costs.threads / 32.0) * costs.waits.instruction * 1e-3 / figures.clock_ghz;
}

}  // namespace

std::int32_t resident(const Target& target, const CtaCosts& costs) {
  const std::int32_t by_registers = kRegisterFile / (costs.registers * costs.threads);
  return std::max(1, std::min(by_registers, resident_ctas(target, costs.threads, costs.shared_bytes)));
}

double step_us(const Spmm& problem, const Target& target, const LoopCosts& costs,
               const Architecture& figures) {
  const double chunks =
      static_cast<double>(costs.shape.parts) * costs.shape.weights * costs.shape.shares / costs.shape.blocks;
  const double products = static_cast<double>(costs.chunk_products);
  const double multiplied = static_cast<double>(costs.chunk_fmas) / figures.lanes +
                            products * cycles_of_product(problem, target, costs, figures);
  // As many of a CTA's warps wait at the same time as have chunks of their own.
  const double wait = costs.waits.chunk / (costs.chunk_per_warp ? costs.threads / 32.0 : 1);
  return chunks * std::max(wait + issue_us(costs, costs.chunk + costs.load + products, figures),
                           multiplied * 1e-3 / figures.clock_ghz);
}

Prediction timed(const Computation& problem, const Target& target, const Config& config,
                 const CtaCosts& costs, const Work& work, const Architecture& figures) {
  const double cycle = 1e-3 / figures.clock_ghz;
  const double ctas = static_cast<double>(work.ctas);
  // The CTA that has most decides, and a multiprocessor that has most of them: so many together, in waves.
  const auto of_cta = [&](auto all) { return static_cast<double>(all) / ctas * work.largest; };
  const std::int32_t room = resident(target, costs);
  const double multiprocessors = usable(target, config, figures);
  // The CTAs of each further round are those of the first, which go on. CTAs of `halo` have waits.wave, and
  // many tiles each, whose last round need not be full.
  const auto launched_rounds = static_cast<double>(work.rounds);
  const double rounds = costs.waits.wave > 0 ? 1 : launched_rounds;
  const auto of_round = [&](double all) { return std::ceil(all / rounds / multiprocessors); };
  const double together = rounds * of_round(ctas);
  // Not all CTAs of a multiprocessor that have items have most.
  const double busy = std::min(ctas, std::max(static_cast<double>(work.items), 1.0));
  const double most = rounds * of_round(busy);
  const double largest = std::max(work.largest * busy / ctas, 1.0);
  const double uneven = costs.chunk_per_warp ? 1 + (largest - 1) / std::sqrt(most) : largest;
  const auto of_multiprocessor = [&](auto all) { return static_cast<double>(all) / busy * most * uneven; };
  const double waves = rounds * std::ceil(of_round(ctas) / room);
  const double waves_of_launch = std::ceil(std::ceil(ctas / launched_rounds / multiprocessors) / room);
  const double rings = kRingsInCache * std::min(ctas, static_cast<double>(target.workers) * room) *
                       static_cast<double>(costs.shared_bytes);
  const double memory_bytes = static_cast<double>(work.memory_bytes) +
                              bytes_read_again(work, kUsableCache * figures.cache_bytes() - rings);
  const double bytes = arriving_bytes(work);
  const double issued = of_cta(work.instructions + work.products);
  const double rings_of_cta = costs.chunk_per_warp ? config.warps : 1;
  const double chunk =
      costs.waits.chunk +
      costs.waits.kilobyte * kilobytes(bytes / static_cast<double>(std::max<std::int64_t>(work.chunks, 1)));
  // With one stage nothing is done while it is filled.
  const double ahead = config.stages == 1 ? 0.5 : config.stages - 1;
  const double chain = std::max(work.longest_chunks / rings_of_cta * chunk + issue_us(costs, issued, figures),
                                work.longest_chunks / rings_of_cta * costs.waits.latency / ahead);

  Times times{};
  of(times, Bound::latency) =
      waves * chain + (launched_rounds - 1) * costs.waits.round + (waves_of_launch - 1) * costs.waits.wave;
  of(times, Bound::arithmetic) =
      (of_multiprocessor(work.fmas) / figures.lanes +
       of_multiprocessor(work.products_in_time) * cycles_of_product(problem, target, costs, figures)) *
      cycle;
  of(times, Bound::instructions) =
      std::max(of_multiprocessor(work.instructions + work.products) * kAssembled / Architecture::kIssued,
               of_multiprocessor(work.shared_bytes) / Architecture::kSharedBytes) *
      cycle;
  of(times, Bound::cache) = std::max(of_multiprocessor(bytes + static_cast<double>(work.multicast_bytes)) *
                                         work.uneven_bytes / costs.cache_bytes * cycle,
                                     bytes / figures.cache_gbytes * 1e-3);
  of(times, Bound::memory) = memory_bytes / (Architecture::kMemoryReached * figures.memory_gbytes) * 1e-3;
  const auto longest = std::max_element(times.begin(), times.end());
  const double others = std::accumulate(times.begin(), times.end(), -*longest);

  const double launch =
      overlaps_launches(problem, target) ? Architecture::kOverlappedLaunchUs : costs.waits.launch;
  const double items = of_cta(work.items) * waves *
                       (costs.waits.item + kItemKilobyteUs * kilobytes(static_cast<double>(work.item_bytes)));
  const double part_rate = std::min(kPartKilobytes / together, kPartKilobytesOfThread * costs.threads);
  const double parts =
      work.partial_bytes == 0 ? 0 : kCombineUs + kilobytes(of_cta(work.partial_bytes)) / part_rate;
  const double ends = work.kernels * launch + items + parts;
  const bool has_one_stage = config.stages == 1 && !costs.chunk_per_warp;
  Prediction prediction;
  prediction.us =
      ends + *longest + (has_one_stage ? kOverlapLostOfOneStage : costs.waits.overlap_lost) * others;
  prediction.memory_bytes = memory_bytes;
  prediction.cache_bytes = bytes + static_cast<double>(work.multicast_bytes);
  prediction.instructions = static_cast<double>(work.instructions + work.products);
  prediction.products = static_cast<double>(work.fmas) +
                        static_cast<double>(work.products) * costs.product_tiles * products_of_tile(problem);
  prediction.bound =
      ends > *longest ? Bound::latency : static_cast<Bound>(std::distance(times.begin(), longest));
  return prediction;
}

}  // namespace sparsekiln::cuda
