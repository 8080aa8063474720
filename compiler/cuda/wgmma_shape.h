#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/tables.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// Warps of a CTA: a warpgroup that produces and two that multiply.
inline constexpr std::int32_t kWgmmaWarps = 12;
/// Shared memory beside that of the stages: barriers, steps, the flag of the combine, and what aligns stages.
inline constexpr std::int64_t kWgmmaStaticShared = 1024;
/// The most sums of a thread, and with products that are not added to them yet: the rest of the 232 registers
/// is for addresses and the epilogue, which begins when there are no such products.
inline constexpr std::int32_t kMostWgmmaSums = 128;
inline constexpr std::int32_t kMostWgmmaProducts = 192;

/// The numbers of templates/spmm_wgmma.cuh that follow from a config.
struct WgmmaShape {
  std::int32_t threads = 32 * kWgmmaWarps;
  std::int32_t stages_x = 0;    ///< tiles of x
  std::int32_t stages_w = 0;    ///< blocks of W, or merged ones
  std::int32_t interleave = 0;  ///< neighbouring outputs of a thread
  std::int32_t sums = 0;        ///< of a thread that multiplies
  std::int32_t products = 0;    ///< of a thread, where they are not summed in place: of 8-bit floats
  /// A row of a stage, as wide as a swizzled unit of shared memory: 128, or 64 for blocks whose inputs are no
  /// multiple of that.
  std::int32_t line_bytes = 128;
  ChunkShape chunk;               ///< a line of a block's k
  std::int64_t shared_bytes = 0;  ///< of all stages, dynamic
};

/// Throws `invalid_argument`, with what would work, where the numbers do not go together.
[[nodiscard]] WgmmaShape wgmma_shape(const Spmm& problem, const Target& target, const Config& config);

}  // namespace sparsekiln::cuda
