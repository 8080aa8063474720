#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/block_groups.h"
#include "compiler/cuda/family.h"
#include "compiler/halo_box.h"
#include "compiler/sddmm.h"

namespace sparsekiln::cuda {

/// Shared memory of barriers and of sums of dy, beside the stages.
inline constexpr std::int64_t kSddmmHaloStaticShared = 7168;

/// The numbers of templates/sddmm_halo.cuh that follow from a config. Its tile_n is the positions of a tile,
/// its rows the pieces of a group at most, and its stages the places of the ring.
struct SddmmHaloShape {
  std::int32_t threads = 0;
  std::int32_t pairs = 0;  ///< of pieces, of a warpgroup
  std::int32_t sums = 0;   ///< of a thread that multiplies
  GroupShape group;
  HaloBox box;
  std::int64_t shared_bytes = 0;  ///< of all stages, dynamic
};

/// Throws `invalid_argument`, with what would work, where the numbers do not go together.
[[nodiscard]] SddmmHaloShape sddmm_halo_shape(const Sddmm& gradient, const Config& config);

/// What the tuner knows of it.
extern const SddmmTuning kSddmmHaloTuning;

}  // namespace sparsekiln::cuda
