#include "autotune/cuda_prediction.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "autotune/architecture.h"
#include "autotune/cuda_work.h"
#include "compiler/cuda/family.h"
#include "compiler/cuda/multiprocessor.h"

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
  double global_bytes = 0;
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
  of(times, Bound::cache) = ctas * share.global_bytes / Architecture::kCacheBytes * cycle;
  of(times, Bound::latency) = share.chunks / chunks_ahead(costs, config) * share.memory_us;
  return times;
}

/// Cycles of a tensor-core instruction: 16 × 8 × 32 bytes of k, or half of it where m16n8k16 does not exist.
double cycles_of_product(const Computation& problem, const Target& target, const Architecture& figures) {
  if (problem.ieee()) return 0;
  const double products = problem.dtype == DType::f32 || target.compute_capability() < 80 ? 1024 : 2048;
  return products / (figures.products(problem.dtype, problem.math) * figures.mma_share);
}

Prediction timed(const Computation& problem, const Target& target, const Config& config,
                 const CtaCosts& costs, const Work& work) {
  const Architecture figures = architecture(target);
  const double ctas = static_cast<double>(work.ctas);
  const auto of_cta = [&](std::int64_t all) { return static_cast<double>(all) / ctas * work.largest; };
  const double from_memory = static_cast<double>(work.memory_bytes) /
                             static_cast<double>(std::max<std::int64_t>(work.global_bytes, 1));
  const double latency = Architecture::kCacheUs +
                         std::min(from_memory, 1.0) * (Architecture::kMemoryUs - Architecture::kCacheUs);
  const Share share{
      of_cta(work.fmas) / figures.lanes + of_cta(work.products) * cycles_of_product(problem, target, figures),
      of_cta(work.instructions + work.products),
      of_cta(work.shared_bytes),
      of_cta(work.global_bytes),
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
  of(times, Bound::memory) = static_cast<double>(work.memory_bytes) / figures.memory_gbytes * 1e-3;
  of(times, Bound::cache) =
      std::max(of(times, Bound::cache), static_cast<double>(work.global_bytes) / figures.cache_gbytes * 1e-3);
  const auto longest = std::max_element(times.begin(), times.end());
  double others = -*longest;
  for (const double time : times) others += time;
  // A wave begins with a look at the tables and a first copy, and ends with a store.
  const double launch =
      overlaps_launches(problem, target) ? Architecture::kOverlappedLaunchUs : Architecture::kLaunchUs;
  const double begin = launch + 2 * Architecture::kMemoryUs * (waves + (rest > 0 ? 1 : 0));
  Prediction prediction;
  prediction.us = begin + *longest + (config.stages == 1 ? kOverlapLostOfOneStage : kOverlapLost) * others;
  prediction.bound =
      begin > *longest ? Bound::latency : static_cast<Bound>(std::distance(times.begin(), longest));
  return prediction;
}

}  // namespace

Prediction predict(const Spmm& problem, const Target& target, const Config& config, std::int64_t n) {
  const LoopCosts costs = loop_costs(problem, target, config);
  return timed(problem, target, config, costs, estimate(problem, target, config, costs, n));
}

Prediction predict(const Sddmm& gradient, const Target& target, const Config& config, std::int64_t n) {
  const SddmmCosts costs = loop_costs(gradient, target, config);
  return timed(gradient, target, config, costs, estimate(gradient, target, config, costs, n));
}

}  // namespace sparsekiln::cuda
