#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <sparsekiln/convolution.h>
#include <sparsekiln/problem.h>

namespace sparsekiln {

/// A convolution, or its gradient by the input, as a product whose rows of x are displaced by taps.
///
/// Both are computed on a lattice of points i: y is at i · out_step + class, and tap t of a class reads x at
/// (i + shift) · in_step + phase. Forward has one class, and as many phases as its strides leave residues;
/// the gradient by the input has them the other way round, since a tap reaches inputs of one residue alone.
/// Where the convolution is transposed, the two change places.
///
/// In a linear order of the lattice a shift of points is a shift of numbers, the same for all points, if rows
/// of the lattice are so far apart (`pitch`) that whatever a tap reads beyond an end of a row is outside of
/// x: such a row has some points of no y, which are computed in vain, and few: for a kernel of 3 and a
/// padding of 1, one a row.
///
///   phase image of x, rows of `pitch`:    . = outside, read as 0
///
///     . . . . . . .  .         tap (r, s) of point m reads number m + displacement
///     . x x x x x x  .
///     . x x x x x x  .         points of y:  m = (z · pitch[1] + p) · pitch[2] + q
///     . . . . . . .  .
struct Correlation {
  using Extents = Convolution::Extents;

  /// `operation`: forward or grad_input.
  Correlation(const Convolution& convolution, Operation operation);

  bool dynamic;     ///< a launch may have smaller images: these numbers are those of the largest
  Extents input;    ///< positions of an image of x: of dy, for the gradient
  Extents output;   ///< and of y
  Extents in_step;  ///< one of the two is 1 in each dimension
  Extents out_step;
  Extents points;                ///< of the lattice
  Extents pitch;                 ///< of planes, rows and columns
  Extents origin;                ///< the least coordinate of a point that is read: 0 or less
  std::vector<Extents> phases;   ///< those that a tap reads
  std::vector<Extents> classes;  ///< all

  /// What a tap reads for a class.
  struct Tap {
    std::int32_t number = 0;  ///< in the kernel
    std::int32_t phase = 0;   ///< index into phases
    std::int64_t displacement = 0;
  };
  /// By class, in ascending order of their numbers, without those that a mask takes from all blocks. A class
  /// may have none.
  std::vector<std::vector<Tap>> taps;
  std::int32_t kernel_taps = 1;
  std::int64_t least = 0;  ///< displacement
  std::int64_t most = 0;

  /// Numbers of points of an image, from the first to the last that is y's.
  [[nodiscard]] std::int64_t span() const {
    return (std::int64_t{points[0] - 1} * pitch[1] + points[1] - 1) * pitch[2] + points[2];
  }
  /// From a point to the same one of the next image, where images follow one another in the order.
  [[nodiscard]] std::int64_t image_pitch() const { return std::int64_t{pitch[0]} * pitch[1] * pitch[2]; }
  /// Images that a tile of so many points has room for: whole small ones, or 1.
  [[nodiscard]] std::int64_t images_of_tile(std::int32_t tile_n) const {
    return span() > tile_n ? 1 : 1 + (tile_n - span()) / image_pitch();
  }
  /// Tiles that an image is computed in.
  [[nodiscard]] std::int64_t tiles(std::int32_t tile_n) const { return (span() + tile_n - 1) / tile_n; }
  /// Points of a phase that a tile of so many reads, rounded up to whole squares of 16.
  [[nodiscard]] std::int64_t phase_points(std::int32_t tile_n) const {
    return (tile_n + most - least + 15) / 16 * 16;
  }
  /// The phase_points of all phases together.
  [[nodiscard]] std::int64_t panel_points(std::int32_t tile_n) const {
    return static_cast<std::int64_t>(phases.size()) * phase_points(tile_n);
  }
  /// Points of a phase that an image is read at, and of all phases.
  [[nodiscard]] std::int64_t image_phase_points() const { return span() + most - least; }
  [[nodiscard]] std::int64_t image_points() const {
    return image_phase_points() * static_cast<std::int64_t>(phases.size());
  }
  /// Whether every position of y reads the same one of x, by one tap: it is a linear layer of all positions.
  [[nodiscard]] bool pointwise() const {
    return kernel_taps == 1 && phases.size() == 1 && classes.size() == 1 && input == output && least == 0 &&
           most == 0;
  }
  /// Lattice points of an image, by the extents in `points`.
  [[nodiscard]] std::int64_t image_lattice_points() const {
    return std::int64_t{points[0]} * points[1] * points[2];
  }
  /// Rectangles of `tile_n` points, so many wide, that an image's are covered by.
  [[nodiscard]] std::int64_t rectangles(std::int32_t tile_n, std::int32_t width) const {
    const std::int32_t height = tile_n / width;
    return std::int64_t{points[0]} * ((points[1] + height - 1) / height) * ((points[2] + width - 1) / width);
  }
  [[nodiscard]] std::int64_t input_positions() const { return std::int64_t{input[0]} * input[1] * input[2]; }
  [[nodiscard]] std::int64_t output_positions() const {
    return std::int64_t{output[0]} * output[1] * output[2];
  }
};

/// Positions that a tile of variant halo is wide; its height is Config::tile_n divided by it.
inline constexpr std::int32_t kHaloTileWidth = 8;

/// Points of an image's lattice where its output has these extents. `operation`: as Correlation takes it.
[[nodiscard]] std::int64_t lattice_points(const Convolution& convolution, Operation operation,
                                          const Convolution::Extents& output);

}  // namespace sparsekiln
