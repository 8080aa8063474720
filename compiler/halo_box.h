#pragma once

#include <cstdint>

#include <sparsekiln/convolution.h>

#include "compiler/correlation.h"

namespace sparsekiln {

/// Features of a box of x, or of a tile of dy, in variant halo, and elements of a line of W: 64 bytes.
inline constexpr std::int32_t kHaloLine = 32;
inline constexpr std::int64_t kHaloLineBytes = 64;

/// The positions of x that the taps of a tile of variant halo reach: the tile, of `tile_n` positions and
/// kHaloTileWidth of them wide, with its border, in one plane.
struct HaloBox {
  Convolution::Extents extents{};
  Convolution::Extents first{};  ///< where it begins, from the tile's first position on

  /// `mirrored`: taps displace as those of the gradient by the input of a convolution that is not transposed.
  HaloBox(const Convolution& convolution, bool mirrored, std::int32_t tile_n);

  /// What kHaloLine features take.
  [[nodiscard]] std::int64_t bytes() const { return std::int64_t{extents[1]} * extents[2] * kHaloLineBytes; }
  /// Bytes of shared memory that it takes (templates/halo_rings.cuh).
  [[nodiscard]] std::int64_t place_bytes() const {
    constexpr std::int64_t kUnit = 1024;
    return (bytes() + kUnit - 1) / kUnit * kUnit;
  }
};

/// Rows of x of an image that the boxes of all its tiles bring, as far as they are in the image: the mean of
/// those for each depth of the kernel.
[[nodiscard]] double loaded_of_one(const Correlation& lattice, const Convolution& convolution,
                                   const HaloBox& box, std::int32_t tile_n);

}  // namespace sparsekiln
