#pragma once

#include "compiler/cuda/family.h"

namespace sparsekiln::cuda {

/// What the tuner knows of variant halo.
extern const SpmmTuning kSpmmHaloTuning;

}  // namespace sparsekiln::cuda
