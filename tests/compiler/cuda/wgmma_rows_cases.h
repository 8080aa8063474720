#pragma once

#include <cstdint>

#include <sparsekiln/config.h>

#include "tests/compiler/cuda/mma_cases.h"

namespace sparsekiln::cuda {

inline Config wgmma_rows_config(std::int32_t tile_n, std::int32_t stages, std::int32_t rows = 2,
                                std::int32_t merge = 1) {
  Config config;
  config.variant = Variant::wgmma_rows;
  config.tile_n = tile_n;
  config.stages = stages;
  config.warps = 4 * (rows + 1);
  config.rows = rows;
  config.merge = merge;
  config.operand_a = OperandA::w;
  return config;
}

}  // namespace sparsekiln::cuda
