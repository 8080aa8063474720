#include "compiler/cuda/halo_problem.h"

#include <fmt/format.h>

#include "compiler/cuda/refusal.h"

namespace sparsekiln::cuda {

void require_halo(bool works, std::string_view why) {
  if (!works) refuse(fmt::format("{}; variant mma would work", why));
}

void require_halo_images(const Computation& problem, const Correlation* gathered,
                         std::int32_t image_alignment, const Target& target) {
  require_halo(target.compute_capability() == 90,
               fmt::format("variant halo is for sm_90's tensor cores, not for {}", target.arch));
  require_halo(gathered != nullptr,
               "variant halo computes convolutions whose taps read neighbouring positions");
  require_halo(size_of(problem.dtype) == 2,
               fmt::format("variant halo multiplies f16 and bf16, not {}", name(problem.dtype)));
  require_halo(!problem.channels_first() && image_alignment == 0,
               "variant halo reads channels-last images, not channels-first");
  require_halo(!problem.convolution.dynamic,
               "variant halo takes images of one size, which are compiled in, not up to a bound");
  constexpr Convolution::Extents kOne{1, 1, 1};
  require_halo(gathered->in_step == kOne && gathered->out_step == kOne,
               "variant halo computes convolutions with a stride of 1");
  require_halo(
      problem.alignment == 16,
      fmt::format("variant halo reads activations that are aligned to 16 bytes, not {}", problem.alignment));
}

}  // namespace sparsekiln::cuda
