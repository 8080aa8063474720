#include "compiler/cpu/level.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include <sparsekiln/error.h>

#include "compiler/cpu/weight_order.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::string_view kLinux = "x86_64-unknown-linux-gnu";

// Eight sums keep two 4-cycle multiply-adders busy, twelve have some to spare. On AVX2, three outputs by four
// vectors are twelve with 7 loads for 12 multiply-adds (two of each a cycle), where four by two take 6 for 8;
// sums, three weights and one vector of x fill the registers; but eight outputs are twice four, and no sum of
// threes. Six tokens by two vectors of outputs, 8 for 12, are as good; blocks of 16 gain some tenth by them,
// for one tile has all of a block's outputs, and others nothing. AVX-512 has registers for eight by two: 10
// for 16.
constexpr std::array kLevels = {
    Level{"x86-64", kLinux, "x86-64", "", 4, 4, 0, 0, 0, 14, false, false, false},
    Level{"x86-64-v3", kLinux, "x86-64-v3", "", 8, 4, 3, 16, 6, 14, true, false, true},
    Level{"x86-64-v4", kLinux, "x86-64-v4", "", 16, 8, 0, 0, 0, 30, true, false, true},
    Level{"x86-64-v4-bf16", kLinux, "x86-64-v4", "+avx512bf16", 16, 8, 0, 0, 0, 30, true, true, true},
    Level{"generic", "", "generic", "", 4, 4, 0, 0, 0, 14, false, false, false},
};

/// `total` in the fewest shares of at most `most`, which differ by one at most.
std::vector<std::int32_t> shares(std::int32_t total, std::int32_t most) {
  const std::int32_t count = (total + most - 1) / most;
  std::vector<std::int32_t> result;
  for (std::int32_t i = 0; i < count; ++i) result.push_back((total + i) / count);
  return result;
}

}  // namespace

const Level& level_of(const Target& target) {
  for (const Level& level : kLevels)
    if (target.kind == Target::Kind::cpu && level.name == target.arch) return level;
  std::string known;
  for (const Level& level : kLevels) known += fmt::format("{}{}", known.empty() ? "" : ", ", level.name);
  throw Error(ErrorKind::invalid_argument,
              fmt::format("the cpu target has no level '{}'; it has {}", target.arch, known));
}

std::int32_t RegisterTile::largest() const { return *std::max_element(outputs.begin(), outputs.end()); }

Axis axis_of(const Level& level, std::int32_t block_out, DType dtype, const Config& config) {
  if (config.tile_n < level.lanes) return Axis::k;
  const bool broadcast = config.packed && config.tile_out == 0 && dtype == DType::f32;
  return broadcast && block_out == level.broadcast_outputs ? Axis::output : Axis::token;
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
      tile.tokens = shares(config.tile_n, level.tile_tokens);
      break;
    case Axis::token: {
      const std::int32_t available = config.tile_n / level.lanes;
      const bool wide = level.wide_outputs > 0 && available % 4 == 0 &&
                        config.tile_out <= level.wide_outputs &&
                        (block_out > 2 * level.tile_outputs || config.tile_out > 0);
      tile.vectors = wide ? 4 : available % 2 == 0 ? 2 : available % 3 == 0 ? 3 : 1;
      // The halves of pairs take a register more than float32, which three outputs do not leave.
      const bool halves = word_elements(dtype, by_columns) == 2 && !level.dot_bf16;
      const std::int32_t fitting = wide                ? level.wide_outputs - (halves ? 1 : 0)
                                   : tile.vectors == 1 ? 2 * level.tile_outputs
                                                       : level.tile_outputs;
      tile.outputs = shares(block_out, config.tile_out > 0 ? config.tile_out : fitting);
      break;
    }
  }
  return tile;
}

}  // namespace sparsekiln::cpu
