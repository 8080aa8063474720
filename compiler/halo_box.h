#pragma once

#include <cstdint>

#include <sparsekiln/convolution.h>

#include "compiler/correlation.h"

namespace sparsekiln {

/// Features of a box of x, or of a tile of dy, in variant halo, and elements of a line of W: 64 bytes.
inline constexpr std::int32_t kHaloLine = 32;
inline constexpr std::int64_t kHaloLineBytes = 64;

/// What a tap adds to the position of x that a point reads, in one dimension. `mirrored`: taps displace as
/// those of the gradient by the input of a convolution that is not transposed; its strides leave apart what
/// they reach, and it is that of the class that the tap belongs to.
[[nodiscard]] std::int32_t halo_offset(const Convolution& convolution, bool mirrored, std::size_t axis,
                                       std::int32_t tap);

/// The positions of x that the taps of a tile of variant halo reach, in one plane (templates/halo_rings.cuh).
/// The tile is of `tile_n` points, kHaloTileWidth of them wide. Positions whose residue modulo the strides is
/// the same are next to each other: a box for each such phase, all of the same extents.
struct HaloBox {
  Convolution::Extents first{};    ///< the least offset
  Convolution::Extents step{};     ///< from a position of a box to the next one
  Convolution::Extents phases{};   ///< tap t reads the box of number t % phases
  Convolution::Extents extents{};  ///< positions of each

  HaloBox(const Convolution& convolution, bool mirrored, std::int32_t tile_n);

  /// The offset where the box of a phase begins, in one dimension, for taps so far apart.
  [[nodiscard]] std::int32_t begin(std::size_t axis, std::int32_t phase, std::int32_t dilation) const {
    return first[axis] + phase * dilation % step[axis];
  }
  /// Bytes from its first position to the first one that a tap reads, where taps are not mirrored.
  [[nodiscard]] std::int64_t displacement(const Convolution& convolution, std::int32_t tap_h,
                                          std::int32_t tap_w) const;
  [[nodiscard]] std::int32_t boxes() const { return phases[1] * phases[2]; }
  /// What kHaloLine features take, in all boxes.
  [[nodiscard]] std::int64_t bytes() const { return boxes() * bytes_of_box(); }
  /// Bytes of shared memory that they take.
  [[nodiscard]] std::int64_t place_bytes() const { return boxes() * place_bytes_of_box(); }

 private:
  [[nodiscard]] std::int64_t bytes_of_box() const {
    return std::int64_t{extents[1]} * extents[2] * kHaloLineBytes;
  }
  [[nodiscard]] std::int64_t place_bytes_of_box() const {
    constexpr std::int64_t kUnit = 1024;
    return (bytes_of_box() + kUnit - 1) / kUnit * kUnit;
  }
};

/// Rows of x of an image that the boxes of all its tiles bring, as far as they are in the image: the mean of
/// those for each depth of the kernel.
[[nodiscard]] double loaded_of_one(const Correlation& lattice, const Convolution& convolution, bool mirrored,
                                   std::int32_t tile_n);

}  // namespace sparsekiln
