#pragma once

#include <array>

#include "compiler/family_tuning.h"
#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cpu {

/// What the tuner knows of the cpu target's families of kernels, by kind of problem.
[[nodiscard]] const std::array<const FamilyTuning<Spmm>*, 1>& tunings_for(const Spmm&);
[[nodiscard]] const std::array<const FamilyTuning<Sddmm>*, 1>& tunings_for(const Sddmm&);

}  // namespace sparsekiln::cpu
