#include "compiler/cpu/level.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include <sparsekiln/error.h>

namespace sparsekiln::cpu {
namespace {

constexpr std::string_view kLinux = "x86_64-unknown-linux-gnu";

// Two vectors of sums an output: eight sums keep two 4-cycle multiply-adders busy. On AVX2, four outputs by
// two vectors are faster than five or six, which would fit (seen on Zen 3; pin tile_out to compare).
constexpr std::array kLevels = {
    Level{"x86-64", kLinux, "x86-64", "", 4, 4, false, false},
    Level{"x86-64-v3", kLinux, "x86-64-v3", "", 8, 4, true, false},
    Level{"x86-64-v4", kLinux, "x86-64-v4", "", 16, 8, true, false},
    Level{"x86-64-v4-bf16", kLinux, "x86-64-v4", "+avx512bf16", 16, 8, true, true},
    Level{"generic", "", "generic", "", 4, 4, false, false},
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

RegisterTile register_tile(const Level& level, std::int32_t block_out, std::int32_t tile_n,
                           std::int32_t tile_out) {
  const std::int32_t available = tile_n / level.lanes;
  RegisterTile tile;
  tile.vectors = available % 2 == 0 ? 2 : available % 3 == 0 ? 3 : 1;
  const std::int32_t fitting = tile.vectors == 1 ? 2 * level.tile_outputs : level.tile_outputs;
  const std::int32_t most = tile_out > 0 ? tile_out : fitting;
  const std::int32_t tiles = (block_out + most - 1) / most;
  for (std::int32_t i = 0; i < tiles; ++i) tile.outputs.push_back((block_out + i) / tiles);
  return tile;
}

}  // namespace sparsekiln::cpu
