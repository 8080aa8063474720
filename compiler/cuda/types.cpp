#include "compiler/cuda/types.h"

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/activation.h"
#include "compiler/element.h"

namespace sparsekiln::cuda {

std::string_view product_of(DType type) { return element(type).cuda.product; }
std::string_view output_of(DType type) { return element(type).cuda.output; }
std::string_view operand_of(DType type) { return element(type).cuda.operand; }

void require_types(const Computation& problem, const Target& target) {
  const auto require = [&](DType type, std::string_view spelling) {
    if (spelling.empty())
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("{} on {}: {} runs only on the cpu target; target cpu, or dtype f32, would work",
                      name(type), target.arch, element(type).array_name));
  };
  require(problem.dtype, product_of(problem.dtype));
  require(problem.out_dtype, output_of(problem.out_dtype));
}

std::string_view activation_of(Activation activation) { return row_of(activation).device; }

bool on_cuda_cores(const Computation& problem, const Target& target) {
  if (problem.ieee()) return true;
  return size_of(problem.dtype) == 1 &&
         (target.compute_capability() < element(problem.dtype).cuda.least_capability ||
          problem.block.in < least_inputs(problem, problem.dtype));
}

Variant fallback_variant(const Computation& problem, const Target& target) {
  return on_cuda_cores(problem, target) ? Variant::simt : Variant::mma;
}

std::int32_t least_inputs(const Computation& problem, DType type) {
  constexpr std::int32_t kBytes = 32;
  const bool several_weights =
      problem.epilogue.glu || (problem.operation == Operation::forward && problem.gates_of_cell() > 1);
  return kBytes / (several_weights ? 1 : 2) / static_cast<std::int32_t>(size_of(type));
}

void require_mma(const Computation& problem, const Target& target) {
  if (problem.ieee())
    throw Error(
        ErrorKind::invalid_argument,
        "variant mma computes f32 with math tf32, not ieee; variant simt, or math tf32 where that precision "
        "will do, would work");
  require_tensor_cores(problem, target);
}

void require_tensor_cores(const Computation& problem, const Target& target) {
  const int least = element(problem.dtype).cuda.least_capability;
  if (target.compute_capability() >= least) return;
  const bool is_f16 = problem.block.in >= least_inputs(problem, DType::f16);
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format(
          "{} is for sm_{} and later, not for {}: its tensor cores {}; {}{}f32 with math ieee{} would "
          "work",
          problem.dtype == DType::f32 ? "math tf32" : name(problem.dtype), least, target.arch,
          size_of(problem.dtype) == 1 ? "have no m16n8k32 of it" : "have only f16",
          size_of(problem.dtype) == 1 ? "variant simt, " : "", is_f16 ? "f16, or " : "", is_f16 ? "," : ""));
}

}  // namespace sparsekiln::cuda
