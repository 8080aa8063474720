#include "compiler/cuda/types.h"

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/activation.h"

namespace sparsekiln::cuda {

std::string_view product_of(DType type) {
  return type == DType::f16 ? "F16Product" : type == DType::bf16 ? "Bf16Product" : "Tf32Product";
}

std::string_view output_of(DType type) {
  return type == DType::f16 ? "F16Output" : type == DType::bf16 ? "Bf16Output" : "F32Output";
}

std::string_view operand_of(DType type) {
  return type == DType::f16 ? "F16Operand" : type == DType::bf16 ? "Bf16Operand" : "F32Operand";
}

std::string_view activation_of(Activation activation) { return row_of(activation).device; }

void require_tensor_cores(const Computation& problem, const Target& target) {
  if (problem.dtype != DType::f16 && target.compute_capability() < 80)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("{} is for sm_80 and later, not for {}: its tensor cores have f16 alone; f16, or f32 "
                    "with math ieee, would work",
                    problem.dtype == DType::f32 ? "math tf32" : name(problem.dtype), target.arch));
}

}  // namespace sparsekiln::cuda
