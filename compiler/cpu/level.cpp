#include "compiler/cpu/level.h"

#include <algorithm>

#include "compiler/cpu/weight_order.h"

namespace sparsekiln::cpu {
namespace {

/// `total` in the fewest shares of at most `most`, which differ by one at most.
std::vector<std::int32_t> shares(std::int32_t total, std::int32_t most) {
  const std::int32_t count = (total + most - 1) / most;
  std::vector<std::int32_t> result;
  for (std::int32_t i = 0; i < count; ++i) result.push_back((total + i) / count);
  return result;
}

}  // namespace

std::int32_t RegisterTile::largest() const { return *std::max_element(outputs.begin(), outputs.end()); }

Axis axis_of(const Level& level, std::int32_t block_out, DType dtype, const Config& config) {
  if (config.tile_n < level.lanes) return Axis::k;
  const bool broadcast = config.packed && config.tile_out == 0 && dtype == DType::f32;
  return broadcast && block_out == level.broadcast_outputs ? Axis::output : Axis::batch_row;
}

RegisterTile register_tile(const Level& level, std::int32_t block_out, DType dtype, const Config& config,
                           bool by_columns) {
  RegisterTile tile;
  switch (axis_of(level, block_out, dtype, config)) {
    case Axis::k:  // one output a tile: packed is the order in which the weight lies
      tile.outputs.assign(static_cast<std::size_t>(block_out), 1);
      break;
    case Axis::output:
      tile.outputs = {block_out};
      tile.vectors = block_out / level.lanes;
      tile.batch_rows = shares(config.tile_n, level.tile_batch_rows);
      break;
    case Axis::batch_row: {
      const std::int32_t available = config.tile_n / level.lanes;
      const bool wide = level.wide_outputs > 0 && available % 4 == 0 && config.tile_out <= level.wide_outputs;
      tile.vectors = wide ? 4 : available % 2 == 0 ? 2 : available % 3 == 0 ? 3 : 1;
      const bool halves = word_elements(dtype, by_columns) == 2 && !level.dot_bf16;
      const std::int32_t fitting = wide                ? level.wide_outputs_of(halves)
                                   : tile.vectors == 1 ? 2 * level.tile_outputs
                                                       : level.tile_outputs;
      tile.outputs = shares(block_out, config.tile_out > 0 ? config.tile_out : fitting);
      break;
    }
  }
  return tile;
}

}  // namespace sparsekiln::cpu
