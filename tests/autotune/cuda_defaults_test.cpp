#include "autotune/cuda_defaults.h"

#include <doctest/doctest.h>

#include "compiler/cuda/mma_shape.h"

namespace sparsekiln::cuda {
namespace {

const Target kH100 = Target::parse("h100");

Problem half_problem(BlockShape block) {
  Problem problem;
  problem.layout = Layout::from_mask(1, 1, std::vector<std::uint8_t>{1});
  problem.block = block;
  problem.dtype = problem.out_dtype = DType::f16;
  return problem;
}

TEST_CASE("float32 with ieee math runs on CUDA cores, everything else on tensor cores") {
  Problem problem = half_problem({32, 32});
  CHECK(default_config(problem, kH100, 64).variant == Variant::mma);
  problem.dtype = problem.out_dtype = DType::f32;
  CHECK(default_config(problem, kH100, 64).variant == Variant::simt);
  problem.math = Math::tf32;
  CHECK(default_config(problem, kH100, 64).variant == Variant::mma);
}

TEST_CASE("batches that 16 rows do not suit make W the operand A, where a block fills it") {
  CHECK(default_config(half_problem({32, 32}), kH100, 1).operand_a == OperandA::w);
  CHECK(default_config(half_problem({32, 32}), kH100, 1).tile_n == 8);
  CHECK(default_config(half_problem({32, 32}), kH100, 24).operand_a == OperandA::w);
  CHECK(default_config(half_problem({32, 32}), kH100, 24).tile_n == 24);
  CHECK(default_config(half_problem({32, 32}), kH100, 32).operand_a == OperandA::x);
  CHECK(default_config(half_problem({8, 32}), kH100, 1).operand_a == OperandA::x);
  CHECK(default_config(half_problem({8, 32}), kH100, 1).tile_n == 16);
}

TEST_CASE("large batches get larger tiles, and small ones more CTAs") {
  CHECK(default_config(half_problem({32, 32}), kH100, 65).tile_n == 64);
  CHECK(default_config(half_problem({32, 32}), kH100, 8192).tile_n == 128);
  CHECK(default_config(half_problem({32, 32}), kH100, 1).split >
        default_config(half_problem({32, 32}), kH100, 64).split);
}

TEST_CASE("the CTAs that share a multiprocessor have room for their stages") {
  for (const std::int32_t out : {8, 16, 32, 64, 128})
    for (const std::int64_t n : {1, 8, 13, 64, 100, 4096}) {
      const Problem problem = half_problem({out, 64});
      for (const char* name : {"t4", "a100", "h100"}) {
        const Target target = Target::parse(name);
        const Config config = default_config(problem, target, n);
        CAPTURE(out);
        CAPTURE(n);
        CAPTURE(name);
        CHECK(mma_shape(problem, target, config).shared_bytes * config.split <= shared_limit(target));
        CHECK(config.stages >= 2);
      }
    }
}

}  // namespace
}  // namespace sparsekiln::cuda
