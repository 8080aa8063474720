#pragma once

#include "compiler/cuda/family.h"

namespace sparsekiln::cuda {

/// What the tuner knows of variant wgmma.
extern const SpmmTuning kSpmmWgmmaTuning;

}  // namespace sparsekiln::cuda
