#pragma once

#include <cstdint>
#include <string>

#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "autotune/record.h"

namespace sparsekiln {

/// The properties of a GPU besides its target; empty where code is made without one.
struct Part {
  std::string name;              ///< "NVIDIA H200"
  std::int64_t cache_bytes = 0;  ///< L2; 0: unknown
  /// That it holds at once, each CTA on a multiprocessor of its own; 0: unknown, only its driver can say.
  std::int32_t clusters_of_four = 0;
};

/// Nothing of an environment without a device, for which times are modelled.
[[nodiscard]] Part part_of(const Environment& environment);

/// What a part does at most, from public documents (architecture.cpp names them).
/// Rates of a multiprocessor are a cycle's; a product is a multiplication and an addition.
struct Architecture {
  int capability = 0;        ///< the first that it holds for
  double clock_ghz = 0;      ///< boost
  double memory_gbytes = 0;  ///< of the part's memory, GB/s
  double cache_gbytes = 0;   ///< of the part's L2, GB/s
  double cache_mib = 0;      ///< L2
  double half_products = 0;  ///< f16 and bf16 on tensor cores, summed in float32, dense
  double tf32_products = 0;  ///< the same for tf32; 0: it has none
  /// The share of these that `mma.sync` reaches. Kernels here use that instruction; only newer ones use all
  /// of Hopper's and datacenter Blackwell's tensor cores.
  double mma_share = 1;
  std::int32_t lanes = 0;             ///< float32 products on CUDA cores
  std::int32_t clusters_of_four = 0;  ///< see Part

  [[nodiscard]] double cache_bytes() const { return cache_mib * (1 << 20); }

  static constexpr double kIssued = 4;  ///< warp instructions, one for each of four schedulers
  /// Through shared memory, where words that lanes read alike count for each of them.
  static constexpr double kSharedBytes = 211;
  static constexpr double kMemoryReached = 0.88;    ///< the share of the documented rate that kernels reach
  static constexpr double kTensorReached = 0.963;   ///< the same of tensor cores
  static constexpr double kOverlappedLaunchUs = 1;  ///< as Waits::launch, where launches overlap

  /// Products a cycle of a multiprocessor that kernels of the problem's types use: tensor cores, or CUDA
  /// cores for f32 with math ieee.
  [[nodiscard]] double products(DType dtype, Math math) const;
};

/// The figures of a CUDA target: of a part whose name is known, else of the usual one. An architecture that
/// is not in the table gets those of the next older one.
[[nodiscard]] Architecture architecture(const Target& target, const Part& part = {});

}  // namespace sparsekiln
