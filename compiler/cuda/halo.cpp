#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/halo_problem.h"
#include "compiler/cuda/halo_shape.h"
#include "compiler/cuda/halo_tuning.h"
#include "compiler/cuda/types.h"
#include "compiler/cuda/wgmma_problem.h"

namespace sparsekiln::cuda {
namespace {

void validate(const Spmm& problem, const Target& target) {
  require_halo_images(problem, problem.gathers() ? problem.correlation.get() : nullptr,
                      problem.image_alignment, target);
  require_halo_steps(problem.correlation->in_step);
  require_halo(problem.block.in % kHaloLine == 0,
               fmt::format("variant halo takes blocks whose inputs are multiples of {}, not {}", kHaloLine,
                           problem.block.in));
  constexpr std::array kOutputs{32, 64, 128};
  require_halo(std::find(kOutputs.begin(), kOutputs.end(), problem.block.out) != kOutputs.end(),
               fmt::format("variant halo takes blocks of 32, 64 or 128 outputs, not {}", problem.block.out));
  require_halo(problem.cut_in == 0, fmt::format("variant halo reads whole blocks of features, not {} of them",
                                                problem.in_features()));
  require_halo(problem.weights() == 1,
               fmt::format("variant halo multiplies with one weight, not {}", problem.weights()));
  require_halo(!problem.block_scales && problem.derivative == Activation::none,
               "variant halo has neither block scales nor a derivative");
}

std::vector<TensorMap> tensor_maps(const Spmm& problem, const HaloShape& shape) {
  constexpr std::int32_t kLineBytes = 64;
  const BlockShape block = problem.weight_block();
  // The order of rows that puts four neighbouring outputs together.
  constexpr std::int32_t kInterleave = 4;
  return {{.operand = Argument::x,
           .type = problem.dtype,
           .row_length = problem.in_features(),
           .box_length = kHaloLine,
           .box_rows = 1,
           .swizzle_bytes = kLineBytes,
           .image = problem.correlation->input,
           .box_image = shape.box.extents,
           .step_image = shape.box.step},
          {.operand = Argument::w,
           .type = problem.dtype,
           .row_length = block.in,
           .rows = std::max<std::int64_t>(problem.layout.blocks(), 1) * block.out,
           .stride = block.in,
           .box_length = kHaloLine,
           .box_rows = block.out,
           .swizzle_bytes = kLineBytes,
           .interleave = problem.by_columns() ? 0 : kInterleave}};
}

Instance instantiate(const Spmm& problem, const Target& target, const Config& config) {
  const HaloShape shape = halo_shape(problem, target, config);
  Instance instance;
  instance.threads = shape.threads;
  instance.chunk = shape.chunk;
  instance.dynamic_shared_bytes = static_cast<std::int32_t>(shape.shared_bytes);
  instance.tensor_maps = tensor_maps(problem, shape);
  Declarations& members = instance.declarations;
  members.type("Product", fmt::format("sparsekiln::{}", product_of(problem.dtype)));
  members.type("Element", "Product::Element");
  members.type("Output", fmt::format("sparsekiln::{}", output_of(problem.out_dtype)));
  members.number("stages", config.stages, "of x");
  members.number("stages_w", shape.stages_w, "steps of an output tile");
  declare_box(members, shape.box);
  members.number("operands", wgmma_operands_of(problem.dtype), "ptx::WgmmaOperands");
  return instance;
}

}  // namespace

extern const SpmmFamily kSpmmHalo;
const SpmmFamily kSpmmHalo{Variant::halo,    "spmm_halo", Arithmetic::tensor_cores, validate, instantiate,
                           &kSpmmHaloTuning, "sm_90a"};

}  // namespace sparsekiln::cuda
