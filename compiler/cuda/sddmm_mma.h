#pragma once

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/sddmm_shape.h"
#include "compiler/sddmm.h"

namespace sparsekiln::cuda {

/// The shape of a gradient of the weight on tensor cores, whose tile_out is 0. Throws `invalid_argument`
/// where the config's numbers do not go together.
[[nodiscard]] SddmmShape sddmm_mma_shape(const Sddmm& gradient, const Target& target, const Config& config);

/// What the tuner knows of it.
extern const SddmmTuning kSddmmMmaTuning;

}  // namespace sparsekiln::cuda
