#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/wgmma_shape.h"
#include "compiler/sddmm.h"

namespace sparsekiln::cuda {

/// The numbers of templates/sddmm_wgmma.cuh that follow from a config. Its tile_n is the batch rows of a
/// stage, and its rows the blocks of a run.
struct SddmmWgmmaShape {
  std::int32_t threads = 32 * kWgmmaWarps;
  std::int32_t warpgroups_out = 1;  ///< that share out the outputs of a run: 1 or 2; if 1, both its inputs
  std::int32_t columns = 0;         ///< inputs of a warpgroup
  std::int32_t interleave = 0;      ///< neighbouring inputs of a thread
  std::int32_t sums = 0;            ///< of a thread that multiplies
  std::int64_t static_bytes = 0;    ///< of shared memory, beside the stages
  std::int64_t stage_bytes = 0;     ///< of one
  std::int64_t shared_bytes = 0;    ///< of all stages, dynamic
};

/// Throws `invalid_argument`, with what would work, where the numbers do not go together.
[[nodiscard]] SddmmWgmmaShape sddmm_wgmma_shape(const Sddmm& gradient, const Target& target,
                                                const Config& config);

/// What the tuner knows of it.
extern const SddmmTuning kSddmmWgmmaTuning;

}  // namespace sparsekiln::cuda
