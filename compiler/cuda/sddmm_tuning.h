#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/loop_tuning.h"
#include "compiler/cuda/sddmm_shape.h"
#include "compiler/sddmm.h"

// What families of gradients of the weight have in common for the tuner.

namespace sparsekiln::cuda {

/// FamilyTuning::rejection of both: by arithmetic, and of runs too narrow for the reads and writes of a warp.
[[nodiscard]] const char* sddmm_rejection(const Sddmm& gradient, const Config& config, bool ieee);

/// CudaTuning::keeps_costs of both.
[[nodiscard]] bool has_sddmm_registers(const Sddmm& gradient, const Target& target, const Config& config,
                                       const SddmmCosts& costs);

/// Fitted instructions that differ between families.
struct SddmmFit {
  double begin;    ///< of a warp
  double dy_copy;  ///< of a pass of a warp
  double x_copy;   ///< of a pass of a warp
};
/// The costs that do not depend on how a tile is multiplied.
[[nodiscard]] SddmmCosts sddmm_copy_costs(const Sddmm& gradient, const Config& config,
                                          const SddmmShape& shape, const SddmmFit& fit);

}  // namespace sparsekiln::cuda
