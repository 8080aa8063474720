#include "compiler/cuda/halo_problem.h"

#include <algorithm>

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
  require_halo(
      problem.alignment == 16,
      fmt::format("variant halo reads activations that are aligned to 16 bytes, not {}", problem.alignment));
}

void require_halo_steps(const Convolution::Extents& step) {
  constexpr std::int32_t kMostStep = 8;  // of a tensor map
  require_halo(std::max(step[1], step[2]) <= kMostStep,
               fmt::format("variant halo reads positions of an image that are up to {} apart, not {} x {}",
                           kMostStep, step[1], step[2]));
}

void declare_box(Declarations& members, const HaloBox& box) {
  members.number("halo_h", box.extents[1], "positions of a box of x");
  members.number("halo_w", box.extents[2]);
  members.number("phases_h", box.phases[1], "boxes");
  members.number("phases_w", box.phases[2]);
  members.number("first_h", box.first[1], "the least offset of a tap");
  members.number("first_w", box.first[2]);
}

}  // namespace sparsekiln::cuda
