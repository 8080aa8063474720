#include "compiler/cpu/level.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include <sparsekiln/error.h>

namespace sparsekiln::cpu {
namespace {

constexpr std::string_view kLinux = "x86_64-unknown-linux-gnu";

// Eight sums keep two 4-cycle multiply-adders busy, twelve have some to spare. On AVX2, three outputs by four
// vectors are twelve with 7 loads for 12 multiply-adds (two of each a cycle), where four by two take 6 for 8;
// sums, three weights and one vector of x fill the registers. AVX-512 has registers for eight by two: 10
// for 16.
constexpr std::array kLevels = {
    Level{"x86-64", kLinux, "x86-64", "", 4, 4, 0, false, false},
    Level{"x86-64-v3", kLinux, "x86-64-v3", "", 8, 4, 3, true, false},
    Level{"x86-64-v4", kLinux, "x86-64-v4", "", 16, 8, 0, true, false},
    Level{"x86-64-v4-bf16", kLinux, "x86-64-v4", "+avx512bf16", 16, 8, 0, true, true},
    Level{"generic", "", "generic", "", 4, 4, 0, false, false},
};

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

bool is_thin(const Level& level, std::int32_t tile_n) { return tile_n < level.lanes; }

RegisterTile register_tile(const Level& level, std::int32_t block_out, std::int32_t tile_n,
                           std::int32_t tile_out) {
  const std::int32_t available = tile_n / level.lanes;
  RegisterTile tile;
  if (is_thin(level, tile_n)) {  // one output a tile: packed is the order in which the weight lies
    tile.outputs.assign(static_cast<std::size_t>(block_out), 1);
    return tile;
  }
  const bool wide = level.wide_outputs > 0 && available % 4 == 0 && tile_out <= level.wide_outputs;
  tile.vectors = wide ? 4 : available % 2 == 0 ? 2 : available % 3 == 0 ? 3 : 1;
  const std::int32_t fitting = wide                ? level.wide_outputs
                               : tile.vectors == 1 ? 2 * level.tile_outputs
                                                   : level.tile_outputs;
  const std::int32_t most = tile_out > 0 ? tile_out : fitting;
  const std::int32_t tiles = (block_out + most - 1) / most;
  for (std::int32_t i = 0; i < tiles; ++i) tile.outputs.push_back((block_out + i) / tiles);
  return tile;
}

}  // namespace sparsekiln::cpu
