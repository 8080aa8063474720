#include "compiler/cuda/types.h"

#include <array>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/element.h"
#include "compiler/named.h"

namespace sparsekiln::cuda {

std::string_view product_of(DType type) { return element(type).cuda.product; }
std::string_view output_of(DType type) { return element(type).cuda.output; }
std::string_view operand_of(DType type) { return element(type).cuda.operand; }

void require_types(const Computation& problem, const Target& target) {
  for (const DType type : {problem.dtype, problem.out_dtype})
    if (element(type).cuda.output.empty())
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("{} on {}: {} runs on the cpu target alone; target cpu, or dtype f32, would work",
                      name(type), target.arch, element(type).array_name));
}

std::string_view activation_of(Activation activation) {
  constexpr std::array kNames{Named{Activation::none, "NoActivation"}, Named{Activation::relu, "Relu"},
                              Named{Activation::gelu, "Gelu"}, Named{Activation::gelu_tanh, "GeluTanh"},
                              Named{Activation::silu, "Silu"}};
  return name_in(kNames, activation);
}

void require_tensor_cores(const Computation& problem, const Target& target) {
  if (problem.dtype != DType::f16 && target.compute_capability() < 80)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("{} is for sm_80 and later, not for {}: its tensor cores have f16 alone; f16, or f32 "
                    "with math ieee, would work",
                    problem.dtype == DType::f32 ? "math tf32" : name(problem.dtype), target.arch));
}

}  // namespace sparsekiln::cuda
