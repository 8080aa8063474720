#pragma once

#include "compiler/cuda/family.h"

namespace sparsekiln::cuda {

/// What the tuner knows of variant mma.
extern const SpmmTuning kSpmmMmaTuning;

}  // namespace sparsekiln::cuda
