#pragma once

#include "tests/compiler/cuda/simt_cases.h"

namespace sparsekiln::cuda {

/// The types of x and W, and of y.
struct Types {
  DType dtype, out_dtype;
  Math math = Math::ieee;
};
inline constexpr Types kHalf{DType::f16, DType::f16};
inline constexpr Types kHalfToFloat{DType::f16, DType::f32};
inline constexpr Types kBrain{DType::bf16, DType::bf16};
inline constexpr Types kE4m3{DType::e4m3, DType::f32};
inline constexpr Types kE5m2{DType::e5m2, DType::f32};
inline constexpr Types kI8{DType::i8, DType::f32};
inline constexpr Types kTf32{DType::f32, DType::f32, Math::tf32};

inline Problem mma_problem(BlockShape block, Batch batch, Types types) {
  Problem problem = skewed_problem(block, batch);
  problem.dtype = types.dtype;
  problem.out_dtype = types.out_dtype;
  problem.math = types.math;
  return problem;
}

inline Config mma_config(std::int32_t tile_n, OperandA operand_a, std::int32_t stages, std::int32_t warps) {
  Config config;
  config.variant = Variant::mma;
  config.tile_n = tile_n;
  config.tile_out = 0;
  config.stages = stages;
  config.warps = warps;
  config.operand_a = operand_a;
  return config;
}

}  // namespace sparsekiln::cuda
