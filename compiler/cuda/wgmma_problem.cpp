#include "compiler/cuda/wgmma_problem.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/refusal.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kLeastBlock = 64;

}  // namespace

void require_wgmma(bool works, std::string_view why) {
  if (!works) refuse(fmt::format("{}; variant mma would work", why));
}

std::int32_t wgmma_operands_of(DType type) {
  constexpr std::array kOperands{DType::f16, DType::bf16, DType::f32, DType::e4m3, DType::e5m2, DType::i8};
  const auto* const found = std::find(kOperands.begin(), kOperands.end(), type);
  if (found == kOperands.end())
    throw Error(ErrorKind::internal, fmt::format("wgmma has no operands of {}", name(type)));
  return static_cast<std::int32_t>(found - kOperands.begin());
}

void require_wgmma_operands(const Computation& problem, const Target& target) {
  if (problem.ieee())
    refuse(
        "variant wgmma computes f32 with math tf32, not ieee; variant simt, or math tf32 where that "
        "precision "
        "will do, would work");
  require_wgmma(target.compute_capability() == 90,
                fmt::format("variant wgmma is for sm_90's tensor cores, not for {}", target.arch));
  require_wgmma(!problem.feature_major(),
                fmt::format("variant wgmma reads batch-major activations, not {}", name(problem.order)));
  require_wgmma(
      problem.alignment == 16,
      fmt::format("variant wgmma reads activations that are aligned to 16 bytes, not {}", problem.alignment));
  require_wgmma(
      !problem.block_scales && !problem.block_scale_gradient && problem.derivative == Activation::none,
      "variant wgmma has neither block scales nor a derivative");
  require_wgmma(!problem.convolution.present(), "variant wgmma computes linear layers, no convolutions");
}

void require_wgmma(const Computation& problem, BlockShape block, const Target& target) {
  require_wgmma_operands(problem, target);
  require_wgmma(block.out % kLeastBlock == 0 && block.in % kLeastBlock == 0,
                fmt::format("variant wgmma takes blocks whose sides are multiples of {}, not {}", kLeastBlock,
                            to_string(block)));
}

}  // namespace sparsekiln::cuda
