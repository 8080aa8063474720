#pragma once

#include <cstdint>

#include <sparsekiln/problem.h>

#include "compiler/cpu/level.h"
#include "compiler/cpu/weight_order.h"

namespace sparsekiln::cpu {

/// Copies w, `blocks` dense blocks, into the packed order: as many bytes, nothing padded. The two must not
/// overlap.
void pack_weight(std::int64_t blocks, BlockShape block, DType dtype, const RegisterTile& tile, const void* w,
                 void* packed);

}  // namespace sparsekiln::cpu
