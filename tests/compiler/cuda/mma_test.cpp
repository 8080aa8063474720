// The tensor-core family: shapes, what it refuses, what it emits.

#include <doctest/doctest.h>

#include "compiler/cuda/mma_shape.h"
#include "tests/compiler/cuda/mma_cases.h"

namespace sparsekiln::cuda {
namespace {

const Target kA100{Target::Kind::cuda, "sm_80", 4};
const Target kTuring{Target::Kind::cuda, "sm_75", 4};

std::string refusal(const Problem& problem, const Target& target, const Config& config) {
  try {
    validate(problem, target, config);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::invalid_argument ? error.what() : "of another kind";
  }
  return {};
}

MmaShape shape_of(BlockShape block, Types types, const Config& config, const Target& target = kA100) {
  return mma_shape(mma_problem(block, 64, types), target, config);
}

TEST_CASE("warps are laid so that they read the fewest fragments") {
  const MmaShape wide = shape_of({128, 64}, kHalf, mma_config(32, OperandA::x, 2, 4));
  CHECK(wide.warps_out == 4);
  CHECK(wide.warps_n == 1);
  const MmaShape high = shape_of({32, 64}, kHalf, mma_config(128, OperandA::x, 2, 4));
  CHECK(high.warps_out == 1);
  CHECK(high.warps_n == 4);
  CHECK(high.sums == 32);
  CHECK(high.threads == 128);
}

TEST_CASE("tile_out fixes the outputs of a warp") {
  Config config = mma_config(64, OperandA::x, 2, 4);
  config.tile_out = 16;
  const MmaShape shape = shape_of({32, 32}, kHalf, config);
  CHECK(shape.warps_out == 2);
  CHECK(shape.warps_n == 2);
}

TEST_CASE("a thread has as many neighbouring outputs as its warp, up to 16 bytes") {
  CHECK(shape_of({8, 32}, kHalf, mma_config(16, OperandA::x, 2, 1)).interleave == 2);
  CHECK(shape_of({16, 32}, kHalf, mma_config(16, OperandA::x, 2, 1)).interleave == 4);
  CHECK(shape_of({64, 32}, kHalf, mma_config(16, OperandA::x, 2, 1)).interleave == 8);
  CHECK(shape_of({64, 32}, kHalfToFloat, mma_config(16, OperandA::x, 2, 1)).interleave == 4);
  CHECK(shape_of({16, 32}, kHalf, mma_config(8, OperandA::w, 2, 1)).interleave == 2);
  CHECK(shape_of({32, 32}, kHalf, mma_config(8, OperandA::w, 2, 1)).interleave == 4);
}

TEST_CASE("by columns a thread has the neighbouring outputs that make what a warp stores whole sectors") {
  const auto interleave = [](BlockShape block, Types types, const Config& config) {
    Problem problem = mma_problem(block, 64, types);
    problem.operation = Operation::grad_input;
    return mma_shape(problem, kA100, config).interleave;
  };
  CHECK(interleave({32, 32}, kHalf, mma_config(16, OperandA::x, 2, 1)) == 4);
  CHECK(interleave({32, 32}, kTf32, mma_config(16, OperandA::x, 2, 1)) == 4);
  CHECK(interleave({32, 32}, kHalfToFloat, mma_config(16, OperandA::x, 2, 1)) == 2);
  CHECK(interleave({32, 8}, kHalf, mma_config(16, OperandA::x, 2, 1)) == 2);
  CHECK(interleave({32, 32}, kHalf, mma_config(8, OperandA::w, 2, 1)) == 2);
  CHECK(interleave({32, 32}, kTf32, mma_config(8, OperandA::w, 2, 1)) == 2);
  CHECK(interleave({32, 32}, kHalfToFloat, mma_config(8, OperandA::w, 2, 1)) == 1);
}

TEST_CASE("a stage has 128 bytes of k a row, of a part of a block or of up to four blocks") {
  const Config config = mma_config(16, OperandA::x, 2, 1);
  CHECK(shape_of({16, 8}, kHalf, config).chunk_units == 4);
  CHECK(shape_of({16, 16}, kHalf, config).chunk_units == 8);
  CHECK(shape_of({16, 128}, kHalf, config).chunk_units == 8);
  CHECK(shape_of({16, 8}, kTf32, config).chunk_units == 8);
}

TEST_CASE("stages shrink to the shared memory that the architecture has") {
  const Config config = mma_config(128, OperandA::x, 4, 8);
  CHECK(shape_of({128, 64}, kHalf, config).shared_bytes == 128 * 1024);
  CHECK(shape_of({128, 64}, kHalf, config, {Target::Kind::cuda, "sm_86", 4}).shared_bytes == 64 * 1024);
  CHECK(shape_of({128, 64}, kHalf, mma_config(128, OperandA::x, 2, 8), kTuring).shared_bytes == 32 * 1024);
  const Config deep = mma_config(256, OperandA::x, 8, 16);
  CHECK(shape_of({64, 64}, kHalf, deep).chunk_units == 4);
  CHECK(shape_of({64, 64}, kHalf, deep, {Target::Kind::cuda, "sm_86", 4}).chunk_units == 2);
}

TEST_CASE("a block is split into no more parts than the tables can number") {
  for (const std::int32_t tile_n : {64, 128, 256})
    for (const char* arch : {"sm_80", "sm_86", "sm_90"}) {
      const Target target{Target::Kind::cuda, arch, 4};
      const Config config = mma_config(tile_n, OperandA::x, 8, 8);
      const std::string why = refusal(mma_problem({128, 128}, tile_n, kTf32), target, config);
      CAPTURE(arch);
      CAPTURE(why);
      if (why.empty()) {
        CHECK(shape_of({128, 128}, kTf32, config, target).chunk.parts <= kMostParts);
      } else {
        CHECK(why.find("fewer stages or a smaller tile_n would work") != std::string::npos);
      }
    }
}

TEST_CASE("registers that a chunk passes through are counted where there is no asynchronous copy") {
  const auto units = [](BlockShape block, const Config& config, const Target& target) {
    return shape_of(block, kHalf, config, target).chunk_units;
  };
  // 32 sums, and a chunk of 144 rows × 128 bytes: 72 registers of 64 threads, 144 of 32.
  CHECK(units({16, 64}, mma_config(128, OperandA::x, 2, 2), kTuring) == 8);
  CHECK(units({16, 64}, mma_config(128, OperandA::x, 2, 1), kTuring) < 8);
  CHECK(units({16, 64}, mma_config(128, OperandA::x, 2, 1), kA100) == 8);
  // 128 sums leave too few registers for the smallest chunk.
  const Config full = mma_config(128, OperandA::x, 2, 4);
  CHECK(refusal(mma_problem({128, 64}, 128, kHalf), kA100, full) == "");
  CHECK(refusal(mma_problem({128, 64}, 128, kHalf), kTuring, full).find("more warps") != std::string::npos);
}

TEST_CASE("what tensor cores cannot compute is refused with what would work") {
  const Config config = mma_config(16, OperandA::x, 2, 1);
  CHECK(refusal(mma_problem({16, 16}, 16, kHalf), kA100, config) == "");
  Problem ieee = mma_problem({16, 16}, 16, kTf32);
  ieee.math = Math::ieee;
  CHECK(refusal(ieee, kA100, config).find("simt") != std::string::npos);
  CHECK(refusal(mma_problem({16, 16}, 16, kHalf), kTuring, config) == "");
  CHECK(refusal(mma_problem({16, 16}, 16, kBrain), kTuring, config).find("sm_80") != std::string::npos);
  CHECK(refusal(mma_problem({16, 16}, 16, kTf32), kTuring, config).find("sm_80") != std::string::npos);
  CHECK(refusal(mma_problem({16, 16}, 16, kI8), kA100, config) == "");
  CHECK(refusal(mma_problem({16, 16}, 16, kI8), kTuring, config).find("i8 is for sm_80") !=
        std::string::npos);
  CHECK(refusal(mma_problem({16, 16}, 16, kE4m3), kA100, config).find("e4m3 is for sm_89") !=
        std::string::npos);
  CHECK(refusal(mma_problem({16, 8}, 16, kI8), kA100, config).find("blocks of 16x16") != std::string::npos);
}

TEST_CASE("block rows are not merged where blocks are read by columns") {
  Problem problem = mma_problem({32, 32}, 64, kHalf);
  problem.operation = Operation::grad_input;
  Config config = mma_config(16, OperandA::x, 2, 1);
  CHECK(refusal(problem, kA100, config) == "");
  config.merge = 2;
  CHECK(refusal(problem, kA100, config).find("merge=1 would work") != std::string::npos);
  CHECK(refusal(mma_problem({32, 32}, 64, kHalf), kA100, config) == "");
}

TEST_CASE("feature-major floats are B in pairs of tiles, or one") {
  Problem problem = mma_problem({32, 32}, 64, kTf32);
  problem.order = ActivationOrder::feature_major;
  CHECK(refusal(problem, kA100, mma_config(24, OperandA::w, 2, 1)).find("operand_a=x") != std::string::npos);
  CHECK(refusal(problem, kA100, mma_config(16, OperandA::w, 2, 1)) == "");
  CHECK(refusal(problem, kA100, mma_config(8, OperandA::w, 2, 1)) == "");
  problem.dtype = problem.out_dtype = DType::f16;
  problem.math = Math::ieee;
  CHECK(refusal(problem, kA100, mma_config(24, OperandA::w, 2, 1)) == "");
}

TEST_CASE("numbers that do not go together are refused with what would work") {
  const auto why = [](BlockShape block, const Config& config, const Target& target = kA100) {
    return refusal(mma_problem(block, 64, kHalf), target, config);
  };
  CHECK(why({8, 8}, mma_config(8, OperandA::w, 2, 1)).find("operand_a=x or merge=2 would work") !=
        std::string::npos);
  CHECK(why({16, 8}, mma_config(8, OperandA::x, 2, 1)).find("multiple of 16") != std::string::npos);
  CHECK(why({16, 8}, mma_config(12, OperandA::w, 2, 1)).find("multiple of 8") != std::string::npos);
  CHECK(why({16, 8}, mma_config(512, OperandA::x, 2, 1)).find("up to 256") != std::string::npos);
  CHECK(why({16, 8}, mma_config(16, OperandA::x, 9, 1)).find("1 to 8") != std::string::npos);
  CHECK(why({16, 8}, mma_config(16, OperandA::x, 3, 1), kTuring).find("1 to 2") != std::string::npos);
  CHECK(why({16, 8}, mma_config(16, OperandA::x, 2, 4)).find("fewer warps") != std::string::npos);
  CHECK(why({128, 8}, mma_config(128, OperandA::x, 2, 1)).find("more warps") != std::string::npos);
  Config packed = mma_config(16, OperandA::x, 2, 1);
  packed.packed = true;
  CHECK(why({16, 8}, packed).find("packed=0") != std::string::npos);
  Config outputs = mma_config(16, OperandA::x, 2, 1);
  outputs.tile_out = 8;
  CHECK(why({16, 8}, outputs).find("8 outputs each") != std::string::npos);
}

TEST_CASE("an entry of a tensor-core kernel asks for dynamic shared memory") {
  const Problem problem = mma_problem({32, 32}, 64, kHalf);
  const Source source = emit_plan(problem, kA100, {{64, mma_config(64, OperandA::x, 4, 4)}});
  REQUIRE(source.entries.size() == 1);
  CHECK(source.entries.front().dynamic_shared_bytes == 4 * 128 * (64 + 32));
  CHECK(source.entries.front().threads == 128);
  CHECK(source.text.find("spmm_mma<Config0>(x, w, y, workspace, n, x_stride, y_stride, ends, Table0{});") !=
        std::string::npos);
  CHECK(source.text.find("spmm_simt") == std::string::npos);
  CHECK(source.text.find("#include") == std::string::npos);
}

}  // namespace
}  // namespace sparsekiln::cuda
