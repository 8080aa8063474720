#pragma once

#include "compiler/cuda/family.h"

namespace sparsekiln::cuda {

/// What the tuner knows of variant simt.
extern const SpmmTuning kSpmmSimtTuning;

}  // namespace sparsekiln::cuda
