#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/mma_shape.h"
#include "compiler/cuda/types.h"

namespace sparsekiln::cuda {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::invalid_argument, why); }

void validate(const Spmm& problem, const Target& target) {
  if (problem.dtype == DType::f32 && problem.math != Math::tf32)
    refuse(
        "variant mma computes f32 with math tf32, not ieee; variant simt, or math tf32 where that precision "
        "will do, would work");
  require_tensor_cores(problem, target);
}

Instance instantiate(const Spmm& problem, const Target& target, const Config& config) {
  const MmaShape shape = mma_shape(problem, target, config);
  Instance instance;
  instance.threads = shape.threads;
  instance.chunk = shape.chunk;
  instance.dynamic_shared_bytes = static_cast<std::int32_t>(shape.shared_bytes);
  instance.declarations = fmt::format(
      "  using Product = sparsekiln::{};\n"
      "  using Element = Product::Element;\n"
      "  using Output = sparsekiln::{};\n"
      "  enum : int {{\n"
      "    chunk_units = {},  // 16 bytes of k each, of one stage's rows\n"
      "    stages = {},\n"
      "    warps_out = {},\n"
      "    warps_n = {},\n"
      "    run = {},  // neighbouring outputs of a thread\n"
      "  }};\n"
      "  enum : bool {{ weight_a = {}, async_copy = {} }};\n",
      product_of(problem.dtype), output_of(problem.out_dtype), shape.chunk_units, config.stages,
      shape.warps_out, shape.warps_n, shape.run, config.operand_a == OperandA::w, shape.async_copy);
  return instance;
}

}  // namespace

const Family kMma{Variant::mma, "spmm_mma", validate, instantiate};

}  // namespace sparsekiln::cuda
