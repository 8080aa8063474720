#pragma once

#include <vector>

#include "compiler/family_tuning.h"
#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cpu {

/// What the tuner knows of the cpu target's families of kernels, by kind of problem.
[[nodiscard]] std::vector<const FamilyTuning<Spmm>*> spmm_tunings();
[[nodiscard]] std::vector<const FamilyTuning<Sddmm>*> sddmm_tunings();

}  // namespace sparsekiln::cpu
