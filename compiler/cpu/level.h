#pragma once

#include <cstdint>
#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>

#include "compiler/cpu_levels.h"

namespace sparsekiln::cpu {

/// What the lanes of a vector stand for.
enum class Axis : std::uint8_t {
  batch_row,  ///< on x packed into panels; the weight is broadcast
  output,     ///< on the weight packed by words of k; x is broadcast
  k,          ///< for batch tiles with fewer batch rows than lanes: the weight streams by at full width
};
/// k, where tile_n has fewer batch rows than a vector has lanes. Outputs, where the weight is packed, in
/// blocks of Level::broadcast_outputs outputs, in float32, and Config::tile_out leaves the register tile
/// open. Else batch rows. None changes a bit of the results but k.
[[nodiscard]] Axis axis_of(const Level& level, std::int32_t block_out, DType dtype, const Config& config);

/// The share of one output tile that is held in registers.
struct RegisterTile {
  std::vector<std::int32_t> outputs;  ///< of each tile of a block, in order; they add up to block.out
  /// Axis::batch row: of batch rows, `lanes` each; a tile has outputs × vectors sums. Axis::output: of a
  /// tile's outputs; it has batch rows × vectors sums.
  std::int32_t vectors = 1;
  std::vector<std::int32_t>
      batch_rows;  ///< Axis::output: of each tile of a batch tile; they add up to tile_n
  [[nodiscard]] std::int32_t largest() const;
};

/// Splits a block's outputs, and along outputs the batch rows too, evenly into the fewest tiles that fit the
/// registers. Config::tile_out caps a tile's outputs; 0: only the registers do. Tiles along k are of one
/// output each. `by_columns`: the weight is read transposed, as grad_input does.
[[nodiscard]] RegisterTile register_tile(const Level& level, std::int32_t block_out, DType dtype,
                                         const Config& config, bool by_columns = false);

}  // namespace sparsekiln::cpu
