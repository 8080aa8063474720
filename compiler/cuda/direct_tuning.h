#pragma once

#include "compiler/cuda/family.h"

namespace sparsekiln::cuda {

/// What the tuner knows of variant direct.
extern const SpmmTuning kSpmmDirectTuning;

}  // namespace sparsekiln::cuda
