#include "compiler/halo_box.h"

#include <algorithm>
#include <cstddef>

namespace sparsekiln {
namespace {

/// Positions of an image that the tiles of one dimension load along it: each its own and what taps reach, as
/// far as it is in the image.
std::int64_t loaded_along(std::int32_t points, std::int32_t input, std::int32_t tile, std::int32_t first,
                          std::int32_t box) {
  std::int64_t loaded = 0;
  for (std::int32_t at = 0; at < points; at += tile)
    loaded += std::max(std::min(at + first + box, input) - std::max(at + first, 0), 0);
  return loaded;
}

}  // namespace

HaloBox::HaloBox(const Convolution& convolution, bool mirrored, std::int32_t tile_n)
    : extents{1, tile_n / kHaloTileWidth, kHaloTileWidth} {
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const std::int32_t reach = (convolution.kernel[i] - 1) * convolution.dilation[i];
    first[i] = mirrored ? convolution.padding_before[i] - reach : -convolution.padding_before[i];
    if (i > 0) extents[i] += reach;
  }
}

double loaded_of_one(const Correlation& lattice, const Convolution& convolution, const HaloBox& box,
                     std::int32_t tile_n) {
  std::int64_t planes = 0;
  for (std::int32_t tap = 0; tap < convolution.kernel[0]; ++tap)
    planes +=
        loaded_along(lattice.points[0], lattice.input[0], 1, box.first[0] + tap * convolution.dilation[0], 1);
  const std::int64_t lines = loaded_along(lattice.points[1], lattice.input[1], tile_n / kHaloTileWidth,
                                          box.first[1], box.extents[1]);
  const std::int64_t across =
      loaded_along(lattice.points[2], lattice.input[2], kHaloTileWidth, box.first[2], box.extents[2]);
  return static_cast<double>(planes * lines * across) / convolution.kernel[0];
}

}  // namespace sparsekiln
