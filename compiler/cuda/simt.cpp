#include <fmt/format.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/simt_shape.h"
#include "compiler/cuda/simt_tuning.h"
#include "compiler/cuda/types.h"

namespace sparsekiln::cuda {
namespace {

void validate(const Spmm& problem, const Target& target) {
  if (size_of(problem.dtype) == 1) {
    if (problem.out_dtype == DType::bf16 && target.compute_capability() < 80)
      refuse(fmt::format(
          "results in bf16 are for sm_80 and later, not for {}; output type f16 or f32 would work",
          target.arch));
    return;
  }
  if (!problem.ieee()) require_tensor_cores(problem, target);  // what another variant would need
  if (problem.dtype != DType::f32 || problem.out_dtype != DType::f32)
    refuse(
        fmt::format("variant simt computes f32 to f32, and of 8 bits, not {} to {}; variant mma would work",
                    name(problem.dtype), name(problem.out_dtype)));
  if (problem.math != Math::ieee)
    refuse(fmt::format("variant simt computes with math ieee, not {}; variant mma would work",
                       name(problem.math)));
}

Instance instantiate(const Spmm& problem, const Target& target, const Config& config) {
  if (config.merge != 1)
    refuse(fmt::format(
        "variant simt multiplies any block in full; merge={} is for tensor cores, merge=1 would work",
        config.merge));
  const SimtShape shape = simt_shape(problem, target, config);
  Instance instance;
  instance.threads = shape.threads;
  instance.chunk.parts = problem.block.in / shape.chunk;
  instance.chunk.weights = problem.weights();
  Declarations& members = instance.declarations;
  members.type("Product", problem.dtype == DType::f32
                              ? "sparsekiln::F32Product"
                              : fmt::format("sparsekiln::{}", product_of(problem.dtype)));
  members.type("Element", "Product::Element");
  members.type("Output", fmt::format("sparsekiln::{}", output_of(problem.out_dtype)));
  members.number("tile_out", config.tile_out, "outputs a thread");
  members.number("stages", config.stages);
  members.number("chunk", shape.chunk, "k of one stage");
  members.flag("async_copy", shape.async_copy);
  return instance;
}

}  // namespace

extern const SpmmFamily kSpmmSimt;
const SpmmFamily kSpmmSimt{Variant::simt, "spmm_simt", Arithmetic::cuda_cores,
                           validate,      instantiate, &kSpmmSimtTuning};

}  // namespace sparsekiln::cuda
