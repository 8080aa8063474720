#pragma once

#include <cstdint>

#include "compiler/cuda/family.h"

namespace sparsekiln::cuda {

/// What a product by wgmma waits for, whose blocks are read by columns or not. `ahead`: bytes of x that are
/// under way in a CTA while a chunk is multiplied.
[[nodiscard]] Waits wgmma_waits(bool by_columns, const Config& config, std::int64_t ahead);

/// What the tuner knows of variant wgmma.
extern const SpmmTuning kSpmmWgmmaTuning;

}  // namespace sparsekiln::cuda
