#include "oracle/edge_reference.h"

#include <cstddef>
#include <map>

namespace sparsekiln {
namespace {

/// Whether a tap meets a position before or after x's, in one dimension.
bool is_outside(const Convolution& convolution, std::size_t i, std::int64_t position, std::int64_t tap) {
  const std::int64_t stride = convolution.stride[i];
  const std::int64_t offset = tap * convolution.dilation[i] - convolution.padding_before[i];
  if (convolution.transposed && (position - offset) % stride != 0) return false;
  const std::int64_t met = convolution.transposed ? (position - offset) / stride : position * stride + offset;
  return met < 0 || met >= convolution.input[i];
}

}  // namespace

std::vector<std::int32_t> edge_reference(const Convolution& convolution) {
  const auto& [depth, height, width] = convolution.output();
  const auto& kernel = convolution.kernel;
  std::map<std::vector<std::int32_t>, std::int32_t> numbers;
  std::vector<std::int32_t> situations;
  for (std::int32_t z = 0; z < depth; ++z)
    for (std::int32_t p = 0; p < height; ++p)
      for (std::int32_t q = 0; q < width; ++q) {
        std::vector<std::int32_t> outside;
        for (std::int32_t tap = 0; tap < convolution.taps(); ++tap)
          if (convolution.uses_tap(tap) && (is_outside(convolution, 0, z, tap / (kernel[1] * kernel[2])) ||
                                            is_outside(convolution, 1, p, tap / kernel[2] % kernel[1]) ||
                                            is_outside(convolution, 2, q, tap % kernel[2])))
            outside.push_back(tap);
        const auto next = static_cast<std::int32_t>(numbers.size());
        situations.push_back(numbers.try_emplace(outside, next).first->second);
      }
  return situations;
}

}  // namespace sparsekiln
