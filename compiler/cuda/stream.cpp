#include <string>

#include <fmt/format.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/stream_shape.h"
#include "compiler/cuda/stream_tuning.h"
#include "compiler/cuda/types.h"

namespace sparsekiln::cuda {
namespace {

void validate(const Spmm& problem, const Target& target) {
  const std::string_view instead = name(fallback_variant(problem, target));
  if (problem.weights() > 1)
    refuse(fmt::format(
        "variant stream multiplies with one weight, and epilogue {} has {}; variant {} would work",
        to_string(problem.epilogue), problem.weights(), instead));
  if (problem.by_columns())
    refuse(fmt::format("variant stream computes forward, not {}; variant mma, or simt with f32, would work",
                       name(problem.operation)));
  if (problem.feature_major())
    refuse(fmt::format(
        "variant stream reads batch-major activations, not {}; variant mma, or simt with f32, would "
        "work",
        name(problem.order)));
  if (operand_of(problem.dtype).empty())
    refuse(
        fmt::format("variant stream does not read {}; variant {} would work", name(problem.dtype), instead));
  if (problem.cut_in != 0 || problem.cut_out != 0)
    refuse(fmt::format("variant stream computes whole blocks, not {} to {} features; variant {} would work",
                       problem.in_features(), problem.out_features(), instead));
  if (problem.alignment != 16)
    refuse(
        fmt::format("variant stream reads activations that are aligned to 16 bytes, not {}; variant {} would "
                    "work",
                    problem.alignment, instead));
  if (problem.gates) refuse(fmt::format("variant stream has no gates; variant {} would work", instead));
  if (!problem.ieee()) require_tensor_cores(problem, target);  // else by CUDA cores
  if (problem.gathers())
    refuse(fmt::format("variant stream computes linear layers, no convolutions; variant {} would work",
                       instead));
}

Instance instantiate(const Spmm& problem, const Target& target, const Config& config) {
  const StreamShape shape = stream_shape(problem, target, config);
  Instance instance;
  instance.threads = shape.threads;
  instance.chunk = shape.chunk;
  instance.dynamic_shared_bytes = static_cast<std::int32_t>(shape.shared_bytes);
  Declarations& members = instance.declarations;
  if (shape.tensor_cores) members.type("Product", fmt::format("sparsekiln::{}", product_of(problem.dtype)));
  members.type("Element", shape.tensor_cores ? "Product::Element" : "float");
  members.type("Output", fmt::format("sparsekiln::{}", output_of(problem.out_dtype)));
  members.number("stages", config.stages);
  members.number("warps", config.warps);
  members.number("shared_bytes", shape.shared_bytes, "dynamic");
  members.number("run", shape.run, "neighboring outputs of a thread");
  members.flag("tensor_cores", shape.tensor_cores);
  members.flag("weight_a", config.operand_a == OperandA::w);
  members.flag("async_copy", shape.async_copy);
  return instance;
}

}  // namespace

extern const SpmmFamily kSpmmStream;
const SpmmFamily kSpmmStream{Variant::stream, "spmm_stream", Arithmetic::either,
                             validate,        instantiate,   &kSpmmStreamTuning};

}  // namespace sparsekiln::cuda
