#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/family.h"
#include "compiler/sddmm.h"

namespace sparsekiln::cuda {

/// Warps of a CTA: three warpgroups that multiply, and one that feeds them.
inline constexpr std::int32_t kGroupedWarps = 16;

/// The numbers of templates/sddmm_grouped.cuh that follow from a config. Its tile_n is the batch rows of a
/// stage, its rows the pieces of a group at most, and its stages the places of the ring.
struct SddmmGroupedShape {
  std::int32_t threads = 32 * kGroupedWarps;
  std::int32_t pairs = 0;         ///< of pieces, of a warpgroup
  std::int32_t place_tiles = 0;   ///< that a stage has room for
  std::int32_t interleave = 0;    ///< neighbouring inputs of a thread
  std::int32_t sums = 0;          ///< of a thread that multiplies
  std::int64_t static_bytes = 0;  ///< of shared memory, beside the stages
  std::int64_t shared_bytes = 0;  ///< of all stages, dynamic
};

/// Throws `invalid_argument`, with what would work, where the numbers do not go together.
[[nodiscard]] SddmmGroupedShape sddmm_grouped_shape(const Sddmm& gradient, const Config& config);

/// What the tuner knows of it.
extern const SddmmTuning kSddmmGroupedTuning;

}  // namespace sparsekiln::cuda
