#pragma once

#include <cstdint>

#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "autotune/record.h"

namespace sparsekiln {

/// What the usual part of an architecture does at most, from public documents (architecture.cpp names them).
/// Rates of a multiprocessor are a cycle's; a product is a multiplication and an addition.
struct Architecture {
  int capability = 0;        ///< the first that it holds for
  double clock_ghz = 0;      ///< boost
  double memory_gbytes = 0;  ///< of the part's memory, GB/s
  double cache_gbytes = 0;   ///< of the part's L2, GB/s
  double half_products = 0;  ///< f16 and bf16 on tensor cores, summed in float32, dense
  double tf32_products = 0;  ///< the same for tf32; 0: it has none
  /// The share of these that `mma.sync` reaches. Kernels here use that instruction; only newer ones use all
  /// of Hopper's and datacenter Blackwell's tensor cores.
  double mma_share = 1;
  std::int32_t lanes = 0;  ///< float32 products on CUDA cores

  static constexpr double kIssued = 4;              ///< warp instructions, one for each of four schedulers
  static constexpr double kSharedBytes = 128;       ///< of shared memory
  static constexpr double kCacheBytes = 64;         ///< from L2, what a multiprocessor takes
  static constexpr double kMemoryUs = 0.6;          ///< from asking memory to having
  static constexpr double kCacheUs = 0.2;           ///< from asking L2
  static constexpr double kLaunchUs = 2.5;          ///< of a launch without work, in a stream of launches
  static constexpr double kOverlappedLaunchUs = 1;  ///< the same where launches overlap

  /// Products a cycle of a multiprocessor that kernels of the problem's types use: tensor cores, or CUDA
  /// cores for f32 with math ieee.
  [[nodiscard]] double products(DType dtype, Math math) const;
};

/// The figures of a CUDA target. An architecture that is not in the table gets those of the next older one.
[[nodiscard]] Architecture architecture(const Target& target);

/// The peak of the target's multiprocessors and of the usual part's memory, as documented. Nothing for a cpu:
/// no document describes this host, which has to be measured.
[[nodiscard]] MachinePeak peak_of(const Problem& problem, const Target& target);

}  // namespace sparsekiln
