#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/halo_shape.h"
#include "compiler/cuda/halo_tuning.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/types.h"
#include "compiler/cuda/wgmma_problem.h"

namespace sparsekiln::cuda {
namespace {

/// Throws `invalid_argument` unless variant halo `works`: why it does not, and that variant mma would.
void require(bool works, std::string_view why) {
  if (!works) refuse(fmt::format("{}; variant mma would work", why));
}

void validate(const Spmm& problem, const Target& target) {
  require(target.compute_capability() == 90,
          fmt::format("variant halo is for sm_90's tensor cores, not for {}", target.arch));
  require(problem.gathers(), "variant halo computes convolutions whose taps read neighbouring positions");
  require(size_of(problem.dtype) == 2,
          fmt::format("variant halo multiplies f16 and bf16, not {}", name(problem.dtype)));
  require(!problem.channels_first() && problem.image_alignment == 0,
          "variant halo reads channels-last images, not channels-first");
  require(!problem.convolution.dynamic,
          "variant halo takes images of one size, which are compiled in, not up to a bound");
  constexpr std::int32_t kMostStep = 8;  // of a tensor map
  const Convolution::Extents& step = problem.correlation->in_step;
  require(std::max(step[1], step[2]) <= kMostStep,
          fmt::format("variant halo reads positions of an image that are up to {} apart, not {} x {}",
                      kMostStep, step[1], step[2]));
  require(
      problem.alignment == 16,
      fmt::format("variant halo reads activations that are aligned to 16 bytes, not {}", problem.alignment));
  require(problem.block.in % kHaloLine == 0,
          fmt::format("variant halo takes blocks whose inputs are multiples of {}, not {}", kHaloLine,
                      problem.block.in));
  constexpr std::array kOutputs{32, 64, 128};
  require(std::find(kOutputs.begin(), kOutputs.end(), problem.block.out) != kOutputs.end(),
          fmt::format("variant halo takes blocks of 32, 64 or 128 outputs, not {}", problem.block.out));
  require(problem.cut_in == 0,
          fmt::format("variant halo reads whole blocks of features, not {} of them", problem.in_features()));
  require(problem.weights() == 1,
          fmt::format("variant halo multiplies with one weight, not {}", problem.weights()));
  require(!problem.gates && problem.derivative == Activation::none,
          "variant halo has neither gates nor a derivative");
}

std::vector<TensorMap> tensor_maps(const Spmm& problem, const HaloShape& shape) {
  constexpr std::int32_t kLineBytes = 64;
  const BlockShape block = problem.weight_block();
  // The order of rows that puts four neighbouring outputs together.
  constexpr std::int32_t kRun = 4;
  return {{.operand = Argument::x,
           .type = problem.dtype,
           .row_length = problem.in_features(),
           .box_length = kHaloLine,
           .box_rows = 1,
           .swizzle_bytes = kLineBytes,
           .image = problem.correlation->input,
           .box_image = shape.stage.box,
           .step_image = shape.stage.step},
          {.operand = Argument::w,
           .type = problem.dtype,
           .row_length = block.in,
           .rows = std::max<std::int64_t>(problem.layout.blocks(), 1) * block.out,
           .stride = block.in,
           .box_length = kHaloLine,
           .box_rows = block.out,
           .swizzle_bytes = kLineBytes,
           .run = problem.by_columns() ? 0 : kRun}};
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
  members.number("halo_h", shape.stage.box[1], "positions of a box");
  members.number("halo_w", shape.stage.box[2]);
  members.number("phases_h", shape.stage.phases[1], "boxes of a stage");
  members.number("phases_w", shape.stage.phases[2]);
  members.number("first_h", shape.stage.first[1], "the least offset of a tap");
  members.number("first_w", shape.stage.first[2]);
  members.number("operands", wgmma_operands_of(problem.dtype), "ptx::WgmmaOperands");
  return instance;
}

}  // namespace

extern const SpmmFamily kSpmmHalo;
const SpmmFamily kSpmmHalo{Variant::halo,    "spmm_halo", Arithmetic::tensor_cores, validate, instantiate,
                           &kSpmmHaloTuning, "sm_90a"};

}  // namespace sparsekiln::cuda
