#include <string>

#include <fmt/format.h>

#include "compiler/cuda/direct_shape.h"
#include "compiler/cuda/direct_tuning.h"
#include "compiler/cuda/family.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/small_batch.h"
#include "compiler/cuda/types.h"

namespace sparsekiln::cuda {
namespace {

void validate(const Spmm& problem, const Target& target) {
  if (problem.ieee())
    refuse("variant direct multiplies on tensor cores, not f32 with math ieee; variant simt would work");
  validate_small_batch(problem, target, Variant::direct);
}

Instance instantiate(const Spmm& problem, const Target& target, const Config& config) {
  const DirectShape shape = direct_shape(problem, target, config);
  Instance instance;
  instance.threads = shape.threads;
  instance.ctas = shape.ctas;
  instance.chunk = shape.chunk;
  instance.dynamic_shared_bytes = static_cast<std::int32_t>(shape.shared_bytes);
  Declarations& members = instance.declarations;
  members.type("Product", fmt::format("sparsekiln::{}", product_of(problem.dtype)));
  members.type("Element", "Product::Element");
  members.type("Output", fmt::format("sparsekiln::{}", output_of(problem.out_dtype)));
  members.number("stages", config.stages, "chunks of a warp under way");
  members.number("warps", config.warps);
  members.number("warp_out", warp_outputs(problem, config), "outputs of a block that a warp computes");
  members.number("shared_bytes", shape.shared_bytes, "dynamic");
  members.number("run", shape.run, "neighboring outputs of a thread");
  members.flag("weight_a", config.operand_a == OperandA::w);
  return instance;
}

}  // namespace

extern const SpmmFamily kSpmmDirect;
const SpmmFamily kSpmmDirect{Variant::direct, "spmm_direct", Arithmetic::tensor_cores,
                             validate,        instantiate,   &kSpmmDirectTuning};

}  // namespace sparsekiln::cuda
