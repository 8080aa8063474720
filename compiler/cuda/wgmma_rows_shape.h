#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/tables.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// The numbers of templates/spmm_wgmma_rows.cuh that follow from a config.
struct WgmmaRowsShape {
  std::int32_t threads = 0;
  std::int32_t stages_x = 0;  ///< lines of x
  std::int32_t stages_w = 0;  ///< blocks of W, or merged ones, of each warpgroup: a power of two
  /// Bytes of a row of a stage of x: of one block column, or of as many of 32 bytes as fill 128.
  std::int32_t line_bytes = 0;
  std::int32_t piece_bytes = 0;   ///< of a row of a block in memory
  std::int32_t columns = 0;       ///< batch rows of an instruction
  ChunkShape chunk;               ///< of one tile: a block column
  std::int64_t shared_bytes = 0;  ///< of all stages, dynamic
};

/// Outputs of a tile, which a warpgroup has.
inline constexpr std::int32_t kRowsTile = 64;

/// Throws `invalid_argument`, with what would work, where the numbers do not go together.
[[nodiscard]] WgmmaRowsShape wgmma_rows_shape(const Spmm& problem, const Target& target,
                                              const Config& config);

}  // namespace sparsekiln::cuda
