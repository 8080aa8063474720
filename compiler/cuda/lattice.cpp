#include "compiler/cuda/lattice.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

#include "compiler/cuda/refusal.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kMostBits = 64;

void add(Declarations& members, std::string_view name, const Convolution::Extents& extents) {
  constexpr std::array<std::string_view, 3> kDimensions{"d", "h", "w"};
  for (std::size_t i = 0; i < extents.size(); ++i)
    members.number(fmt::format("{}_{}", name, kDimensions[i]), extents[i]);
}

}  // namespace

void validate_lattice(const Computation& computed) {
  if (computed.feature_major())
    refuse(
        "a convolution of feature-major activations, channels-first: for CUDA targets batch-major ones, "
        "channels-last, would work");
  const auto& kernel = computed.convolution.kernel;
  const std::int64_t bits = std::int64_t{kernel[0]} + kernel[1] + kernel[2];
  if (bits > kMostBits)
    refuse(
        fmt::format("a convolution with a kernel of depth {}, height {} and width {}, added up {}: for CUDA "
                    "targets they are {} together at most",
                    kernel[0], kernel[1], kernel[2], bits, kMostBits));
}

Declarations lattice_declarations(const Convolution& convolution, const Correlation& correlation,
                                  bool mirrored) {
  Declarations members;
  add(members, "points", correlation.points);
  add(members, "in_step", correlation.in_step);
  add(members, "out_step", correlation.out_step);
  add(members, "kernel", convolution.kernel);
  add(members, "dilation", convolution.dilation);
  add(members, "padding", convolution.padding_before);
  add(members, "input", correlation.input);
  add(members, "output", correlation.output);
  members.flag("mirrored", mirrored, "the gradient by the input");
  return members;
}

}  // namespace sparsekiln::cuda
