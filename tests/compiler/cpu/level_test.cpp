#include "compiler/cpu/level.h"

#include <algorithm>
#include <numeric>
#include <vector>

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

TEST_CASE("sums and operands of a wide register tile fit the sixteen registers of AVX2") {
  const Level& level = level_of({Target::Kind::cpu, "x86-64-v3", 1});
  for (const std::int32_t out : {8, 16, 32, 64, 128}) {
    const RegisterTile tile = register_tile(level, out, 32, 0);
    CHECK(tile.vectors == 4);
    CHECK(tile.vectors * tile.largest() + std::min(tile.vectors, tile.largest()) + 1 <= 16);
  }
  CHECK(register_tile(level, 32, 32, 4).vectors == 2);  // more outputs were asked for than four vectors allow
}

TEST_CASE("thin tiles are those with fewer tokens than a vector has lanes") {
  const Level& avx2 = level_of({Target::Kind::cpu, "x86-64-v3", 1});
  const Level& sse2 = level_of({Target::Kind::cpu, "x86-64", 1});
  CHECK(is_thin(avx2, 1));
  CHECK(is_thin(avx2, 4));
  CHECK(!is_thin(avx2, 8));
  CHECK(is_thin(sse2, 2));
  CHECK(!is_thin(sse2, 4));
  CHECK(register_tile(avx2, 32, 4, 0).outputs == std::vector<std::int32_t>(32, 1));
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
