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
  double tf32_products = 0;  ///< likewise; 0: it has none
  /// Of these, the share that `mma.sync` gets: what kernels are made of here, while newer instructions alone
  /// use all of Hopper's and datacenter Blackwell's tensor cores.
  double mma_share = 1;
  std::int32_t lanes = 0;  ///< float32 products on CUDA cores

  static constexpr double kIssued = 4;         ///< warp instructions, one for each of four schedulers
  static constexpr double kSharedBytes = 128;  ///< of shared memory
  static constexpr double kCacheBytes = 64;    ///< from L2, what a multiprocessor takes
  static constexpr double kMemoryUs = 0.6;     ///< from asking memory to having
  static constexpr double kCacheUs = 0.2;      ///< from asking L2
  static constexpr double kLaunchUs = 2.5;     ///< of a launch without work, in a stream of launches

  /// Products a cycle of a multiprocessor that kernels of the problem's types use: tensor cores, or CUDA
  /// cores for f32 with math ieee.
  [[nodiscard]] double products(DType dtype, Math math) const;
};

/// Of a CUDA target. One that is not there is taken for its elder neighbour.
[[nodiscard]] Architecture architecture(const Target& target);

/// Of the target's multiprocessors and the usual part's memory, by documents. Nothing for a cpu, of which
/// none says what this host is: it is for measuring.
[[nodiscard]] MachinePeak peak_of(const Problem& problem, const Target& target);

}  // namespace sparsekiln
