#include <fmt/format.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/mma_shape.h"
#include "compiler/cuda/mma_tuning.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/types.h"

namespace sparsekiln::cuda {
namespace {

void validate(const Spmm& problem, const Target& target) {
  require_mma(problem, target);
  const std::int32_t least = least_inputs(problem, problem.dtype);
  if (problem.block.in >= least) return;
  const BlockShape block = problem.by_columns() ? BlockShape{least, problem.block.out}  // as W has it
                                                : BlockShape{problem.block.out, least};
  refuse(
      fmt::format("{} of {} in blocks of {} inputs: tensor cores need {} in a block; blocks of {}, or {}, "
                  "would work",
                  problem.epilogue.glu    ? "a glu pair"
                  : problem.weights() > 1 ? "an LSTM's cell"
                                          : "a product",
                  name(problem.dtype), problem.block.in, least, to_string(block),
                  size_of(problem.dtype) == 1 ? "variant simt" : "f32"));
}

Instance instantiate(const Spmm& problem, const Target& target, const Config& config) {
  const MmaShape shape = mma_shape(problem, target, config);
  Instance instance;
  instance.threads = shape.threads;
  instance.chunk = shape.chunk;
  instance.dynamic_shared_bytes = static_cast<std::int32_t>(shape.shared_bytes);
  Declarations& members = instance.declarations;
  members.type("Product", fmt::format("sparsekiln::{}", product_of(problem.dtype)));
  members.type("Element", "Product::Element");
  members.type("Output", fmt::format("sparsekiln::{}", output_of(problem.out_dtype)));
  members.number("chunk_units", shape.chunk_units, "16 bytes of k each, of one stage's rows");
  members.number("stages", config.stages);
  members.number("warps_out", shape.warps_out);
  members.number("warps_n", shape.warps_n);
  members.number("interleave", shape.interleave, "neighboring outputs of a thread");
  members.flag("weight_a", config.operand_a == OperandA::w);
  members.flag("async_copy", shape.async_copy);
  return instance;
}

}  // namespace

extern const SpmmFamily kSpmmMma;
const SpmmFamily kSpmmMma{Variant::mma, "spmm_mma",  Arithmetic::tensor_cores,
                          validate,     instantiate, &kSpmmMmaTuning};

}  // namespace sparsekiln::cuda
