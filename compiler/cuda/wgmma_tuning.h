#pragma once

#include "compiler/cuda/family.h"

namespace sparsekiln::cuda {

/// What a product by wgmma waits for, whose blocks are read by columns or not.
[[nodiscard]] Waits wgmma_waits(bool by_columns, const Config& config);

/// What the tuner knows of variant wgmma.
extern const SpmmTuning kSpmmWgmmaTuning;

}  // namespace sparsekiln::cuda
