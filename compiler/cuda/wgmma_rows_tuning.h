#pragma once

#include "compiler/cuda/family.h"

namespace sparsekiln::cuda {

/// What the tuner knows of variant wgmma_rows.
extern const SpmmTuning kSpmmWgmmaRowsTuning;

}  // namespace sparsekiln::cuda
