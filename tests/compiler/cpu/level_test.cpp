#include "compiler/cpu/level.h"

#include <numeric>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

namespace sparsekiln::cpu {
namespace {

constexpr const char* kLevels[] = {"x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "generic"};

TEST_CASE("register tiles cover a block's outputs exactly and differ by at most one") {
  for (const char* name : kLevels) {
    const Level& level = level_of({Target::Kind::cpu, name, 1});
    for (const std::int32_t out : {8, 16, 32, 64, 128})
      for (std::int32_t tile_n = level.lanes; tile_n <= 64; tile_n += level.lanes)
        for (const std::int32_t tile_out : {0, 3, 5, 8}) {
          const RegisterTile tile = register_tile(level, out, tile_n, tile_out);
          CHECK(std::accumulate(tile.outputs.begin(), tile.outputs.end(), 0) == out);
          CHECK(tile.outputs.back() - tile.outputs.front() <= 1);
          CHECK(tile_n % (tile.vectors * level.lanes) == 0);
          if (tile_out > 0) CHECK(tile.largest() <= tile_out);
        }
  }
}

TEST_CASE("an unknown level is refused with the levels there are") {
  try {
    (void)level_of({Target::Kind::cpu, "x86-64-v5", 1});
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    CHECK(std::string(error.what()).find("x86-64-v4-bf16") != std::string::npos);
  }
}

}  // namespace
}  // namespace sparsekiln::cpu
