#include <string>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/stream_shape.h"
#include "compiler/cuda/types.h"

namespace sparsekiln::cuda {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::invalid_argument, why); }

void validate(const Spmm& problem, const Target& target) {
  if (problem.epilogue.glu)
    refuse(fmt::format(
        "variant stream multiplies with one weight, and epilogue {} has two; variant {} would work",
        to_string(problem.epilogue), problem.ieee() ? "simt" : "mma"));
  if (problem.by_columns())
    refuse(fmt::format("variant stream computes forward, not {}; variant mma, or simt with f32, would work",
                       name(problem.operation)));
  if (problem.feature_major())
    refuse(fmt::format(
        "variant stream reads batch-major activations, not {}; variant mma, or simt with f32, would "
        "work",
        name(problem.order)));
  const char* const instead = problem.ieee() ? "simt" : "mma";
  if (problem.cut_in != 0 || problem.cut_out != 0)
    refuse(fmt::format("variant stream computes whole blocks, not {} to {} features; variant {} would work",
                       problem.in_features(), problem.out_features(), instead));
  if (problem.alignment != 16)
    refuse(
        fmt::format("variant stream reads activations that are aligned to 16 bytes, not {}; variant {} would "
                    "work",
                    problem.alignment, instead));
  if (problem.gates) refuse(fmt::format("variant stream has no gates; variant {} would work", instead));
  if (problem.ieee()) return;  // by CUDA cores
  require_tensor_cores(problem, target);
}

Instance instantiate(const Spmm& problem, const Target& target, const Config& config) {
  const StreamShape shape = stream_shape(problem, target, config);
  Instance instance;
  instance.threads = shape.threads;
  instance.chunk = shape.chunk;
  instance.dynamic_shared_bytes = static_cast<std::int32_t>(shape.shared_bytes);
  instance.declarations = fmt::format(
      "{}"
      "  using Output = sparsekiln::{};\n"
      "  enum : int {{\n"
      "    stages = {},\n"
      "    warps = {},\n"
      "    shared_bytes = {},  // dynamic\n"
      "    run = {},  // neighbouring outputs of a thread\n"
      "  }};\n"
      "  enum : bool {{ tensor_cores = {}, weight_a = {}, async_copy = {} }};\n",
      shape.tensor_cores ? fmt::format("  using Product = sparsekiln::{};\n"
                                       "  using Element = Product::Element;\n",
                                       product_of(problem.dtype))
                         : "  using Element = float;\n",
      output_of(problem.out_dtype), config.stages, config.warps, shape.shared_bytes, shape.run,
      shape.tensor_cores, config.operand_a == OperandA::w, shape.async_copy);
  return instance;
}

}  // namespace

const Family kStream{Variant::stream, "spmm_stream", validate, instantiate};

}  // namespace sparsekiln::cuda
