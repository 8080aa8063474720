#include "compiler/cpu/level.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

#include "autotune/cpu/prediction.h"

namespace sparsekiln::cpu {
namespace {

Config tiled(std::int32_t tile_n, std::int32_t tile_out = 0, bool packed = false) {
  Config config;
  config.tile_n = tile_n;
  config.tile_out = tile_out;
  config.packed = packed;
  return config;
}

constexpr const char* kLevels[] = {"x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "generic"};

TEST_CASE("the cost model expects the register tiles that are made") {
  for (const char* name : kLevels)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const Operation operation : {Operation::forward, Operation::grad_input})
        for (const std::int32_t out : {8, 16, 32, 64, 128})
          for (const std::int32_t tile_out : {0, 2, 3, 4, 6, 8}) {
            const Target target{Target::Kind::cpu, name, 1};
            const Level& level = level_of(target);
            const bool turned = operation == Operation::grad_input;
            Problem problem;
            problem.operation = operation;
            problem.dtype = problem.out_dtype = dtype;
            problem.block = turned ? BlockShape{8, out} : BlockShape{out, 8};
            for (std::int32_t tile_n = level.lanes; tile_n <= 64; tile_n += level.lanes) {
              const Config config = tiled(tile_n, tile_out);
              const RegisterTile tile = register_tile(level, out, dtype, config, turned);
              const ExpectedTile expected = expected_tile(problem, target, config);
              CAPTURE(name);
              CAPTURE(out);
              CAPTURE(to_string(config));
              CHECK(expected.outputs ==
                    doctest::Approx(1.0 * out / static_cast<double>(tile.outputs.size())));
              CHECK(expected.vectors == tile.vectors);
            }
          }
}

TEST_CASE("wide tiles of bf16 leave a register for the halves of pairs") {
  const Level& avx2 = level_of({Target::Kind::cpu, "x86-64-v3", 1});
  CHECK(register_tile(avx2, 32, DType::f32, tiled(32)).largest() == 3);
  CHECK(register_tile(avx2, 32, DType::bf16, tiled(32)).largest() == 2);
  CHECK(register_tile(avx2, 32, DType::bf16, tiled(32), true).largest() == 3);
  CHECK(register_tile(avx2, 32, DType::f16, tiled(32)).largest() == 3);
}

TEST_CASE("register tiles cover a block's outputs exactly and differ by at most one") {
  for (const char* name : kLevels) {
    const Level& level = level_of({Target::Kind::cpu, name, 1});
    for (const std::int32_t out : {8, 16, 32, 64, 128})
      for (std::int32_t tile_n = level.lanes; tile_n <= 64; tile_n += level.lanes)
        for (const std::int32_t tile_out : {0, 3, 5, 8}) {
          const RegisterTile tile = register_tile(level, out, DType::f32, tiled(tile_n, tile_out));
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
    const RegisterTile tile = register_tile(level, out, DType::f32, tiled(32));
    CHECK(tile.vectors == 4);
    CHECK(tile.vectors * tile.largest() + std::min(tile.vectors, tile.largest()) + 1 <= 16);
  }
  // More outputs were asked for than four vectors allow.
  CHECK(register_tile(level, 32, DType::f32, tiled(32, 4)).vectors == 2);
}

TEST_CASE("on AVX-512 a tile has eight outputs by two vectors, or four by four where there are four") {
  const Level& level = level_of({Target::Kind::cpu, "x86-64-v4", 1});
  for (const std::int32_t out : {8, 16, 32, 64, 128}) {
    CHECK(register_tile(level, out, DType::f32, tiled(32)).largest() == 8);
    CHECK(register_tile(level, out, DType::f32, tiled(64)).largest() == 4);
    CHECK(register_tile(level, out, DType::f32, tiled(64)).vectors == 4);
  }
}

TEST_CASE("only the packed weight of float32 blocks of 16 is read in vectors of outputs, on AVX2") {
  const Level& avx2 = level_of({Target::Kind::cpu, "x86-64-v3", 1});
  CHECK(axis_of(avx2, 16, DType::f32, tiled(32, 0, true)) == Axis::output);
  CHECK(axis_of(avx2, 16, DType::f32, tiled(32)) == Axis::batch_row);
  CHECK(axis_of(avx2, 16, DType::f32, tiled(32, 3, true)) == Axis::batch_row);
  CHECK(axis_of(avx2, 16, DType::bf16, tiled(32, 0, true)) == Axis::batch_row);
  CHECK(axis_of(avx2, 32, DType::f32, tiled(32, 0, true)) == Axis::batch_row);
  CHECK(axis_of(avx2, 16, DType::f32, tiled(4, 0, true)) == Axis::k);
  for (const char* name : {"x86-64", "x86-64-v4", "generic"})
    CHECK(axis_of(level_of({Target::Kind::cpu, name, 1}), 16, DType::f32, tiled(32, 0, true)) ==
          Axis::batch_row);
}

TEST_CASE(
    "register tiles along outputs cover a batch tile's batch rows and fit the sixteen registers of AVX2") {
  const Level& level = level_of({Target::Kind::cpu, "x86-64-v3", 1});
  for (std::int32_t tile_n = 8; tile_n <= 128; tile_n += 8) {
    const RegisterTile tile = register_tile(level, 16, DType::f32, tiled(tile_n, 0, true));
    CHECK(tile.outputs == std::vector<std::int32_t>{16});
    CHECK(tile.vectors == 2);
    CHECK(std::accumulate(tile.batch_rows.begin(), tile.batch_rows.end(), 0) == tile_n);
    CHECK(tile.batch_rows.back() - tile.batch_rows.front() <= 1);
    CHECK(tile.batch_rows.back() * tile.vectors + tile.vectors + 1 <= 16);
  }
}

TEST_CASE("vectors run along k in batch tiles with fewer batch rows than they have lanes") {
  const auto axis = [](const char* level, std::int32_t tile_n) {
    return axis_of(level_of({Target::Kind::cpu, level, 1}), 32, DType::f32, tiled(tile_n));
  };
  CHECK(axis("x86-64-v3", 1) == Axis::k);
  CHECK(axis("x86-64-v3", 4) == Axis::k);
  CHECK(axis("x86-64-v3", 8) == Axis::batch_row);
  CHECK(axis("x86-64", 2) == Axis::k);
  CHECK(axis("x86-64", 4) == Axis::batch_row);
  const Level& avx2 = level_of({Target::Kind::cpu, "x86-64-v3", 1});
  CHECK(register_tile(avx2, 32, DType::f32, tiled(4)).outputs == std::vector<std::int32_t>(32, 1));
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
