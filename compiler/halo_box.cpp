#include "compiler/halo_box.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace sparsekiln {
namespace {

/// Rounded up, for a divisor above 0.
std::int32_t ceiling(std::int32_t dividend, std::int32_t divisor) {
  return dividend > 0 ? (dividend - 1) / divisor + 1 : dividend / divisor;
}

/// Positions of an image of `input` that `box` of them are in, from `begin` on and `step` apart.
std::int64_t inside(std::int32_t begin, std::int32_t step, std::int32_t box, std::int32_t input) {
  const auto before = [&](std::int32_t end) { return std::clamp((end - begin + step - 1) / step, 0, box); };
  return before(input) - before(0);
}

/// Positions of an image that the tiles of one dimension load along it: each its own and what taps reach, as
/// far as it is in the image.
std::int64_t loaded_along(std::size_t axis, std::int32_t tile, const Correlation& lattice,
                          std::int32_t dilation, const HaloBox& box) {
  std::int64_t loaded = 0;
  for (std::int32_t at = 0; at < lattice.points[axis]; at += tile)
    for (std::int32_t phase = 0; phase < box.phases[axis]; ++phase)
      loaded += inside(at * box.step[axis] + box.begin(axis, phase, dilation), box.step[axis],
                       box.extents[axis], lattice.input[axis]);
  return loaded;
}

}  // namespace

std::int32_t halo_offset(const Convolution& convolution, bool mirrored, std::size_t axis, std::int32_t tap) {
  const std::int32_t offset = tap * convolution.dilation[axis] - convolution.padding_before[axis];
  return mirrored ? ceiling(-offset, convolution.stride[axis]) : offset;
}

HaloBox::HaloBox(const Convolution& convolution, bool mirrored, std::int32_t tile_n)
    : extents{1, tile_n / kHaloTileWidth, kHaloTileWidth} {
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const std::int32_t last_tap = convolution.kernel[i] - 1;
    const std::int32_t least = halo_offset(convolution, mirrored, i, mirrored ? last_tap : 0);
    const std::int32_t most = halo_offset(convolution, mirrored, i, mirrored ? 0 : last_tap);
    first[i] = least;
    step[i] = mirrored ? 1 : convolution.stride[i];
    phases[i] = std::min(convolution.kernel[i], step[i] / std::gcd(step[i], convolution.dilation[i]));
    if (i > 0) extents[i] += (most - least) / step[i];
  }
  step[0] = phases[0] = 1;  // it is of one depth
}

std::int64_t HaloBox::displacement(const Convolution& convolution, std::int32_t tap_h,
                                   std::int32_t tap_w) const {
  const auto position = [&](std::size_t axis, std::int32_t tap) {
    return (halo_offset(convolution, false, axis, tap) - first[axis]) / step[axis];
  };
  const std::int64_t box = tap_h % phases[1] * std::int64_t{phases[2]} + tap_w % phases[2];
  const std::int64_t line = std::int64_t{position(1, tap_h)} * extents[2] + position(2, tap_w);
  return box * place_bytes_of_box() + line * kHaloLineBytes;
}

double loaded_of_one(const Correlation& lattice, const Convolution& convolution, bool mirrored,
                     std::int32_t tile_n) {
  const HaloBox box(convolution, mirrored, tile_n);
  std::int64_t planes = 0;
  for (std::int32_t tap = 0; tap < convolution.kernel[0]; ++tap) {
    const std::int32_t offset = halo_offset(convolution, mirrored, 0, tap);
    for (std::int32_t point = 0; point < lattice.points[0]; ++point)
      planes += inside(point * lattice.in_step[0] + offset, 1, 1, lattice.input[0]);
  }
  return static_cast<double>(planes *
                             loaded_along(1, tile_n / kHaloTileWidth, lattice, convolution.dilation[1], box) *
                             loaded_along(2, kHaloTileWidth, lattice, convolution.dilation[2], box)) /
         convolution.kernel[0];
}

}  // namespace sparsekiln
