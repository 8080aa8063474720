#include <string>

#include <fmt/format.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/small_batch.h"
#include "compiler/cuda/stream_shape.h"
#include "compiler/cuda/stream_tuning.h"
#include "compiler/cuda/types.h"

namespace sparsekiln::cuda {
namespace {

void validate(const Spmm& problem, const Target& target) {
  validate_small_batch(problem, target, Variant::stream);
  if (problem.by_columns())
    refuse(fmt::format(
        "variant stream reads blocks by rows, which {}{} does by columns; variant {} would work",
        name(problem.operation), problem.convolution.transposed ? " of a transposed convolution" : "",
        name(fallback_variant(problem, target))));
  if (problem.derivative != Activation::none)
    refuse(fmt::format("variant stream multiplies dy as it is, not by a derivative; variant {} would work",
                       name(fallback_variant(problem, target))));
  if (problem.block_scales)
    refuse(fmt::format("variant stream has no block scales; variant {} would work",
                       name(fallback_variant(problem, target))));
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
  members.number("warp_out", warp_outputs(problem, config), "outputs of a block that a warp computes");
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
