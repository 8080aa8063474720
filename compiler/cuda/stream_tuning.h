#pragma once

#include "compiler/cuda/family.h"

namespace sparsekiln::cuda {

/// What the tuner knows of variant stream.
extern const SpmmTuning kSpmmStreamTuning;

}  // namespace sparsekiln::cuda
