#pragma once

#include <cstddef>
#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/tables.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// Features of a box of x, and elements of a line of W: 64 bytes.
inline constexpr std::int32_t kHaloLine = 32;

/// A stage of x (templates/halo_rings.cuh): the positions that taps reach from a tile of points, in boxes of
/// the same extents. An offset is what a tap adds to the position of x that a point reads.
struct HaloStage {
  Convolution::Extents first{};   ///< the least offset
  Convolution::Extents step{};    ///< from a position of a box to the next one
  Convolution::Extents phases{};  ///< boxes: tap t reads that of number t % phases
  Convolution::Extents box{};     ///< positions of each

  /// The offset where the box of a phase begins, in one dimension, for taps so far apart.
  [[nodiscard]] std::int32_t begin(std::size_t axis, std::int32_t phase, std::int32_t dilation) const {
    return first[axis] + phase * dilation % step[axis];
  }
  [[nodiscard]] std::int32_t boxes() const { return phases[1] * phases[2]; }
  [[nodiscard]] std::int64_t positions() const { return std::int64_t{box[1]} * box[2]; }
};

/// The offset of a tap in one dimension. `mirrored`: the gradient by the input, whose taps reach points that
/// its strides leave apart; it is that of the class that the tap belongs to.
[[nodiscard]] std::int32_t halo_offset(const Convolution& convolution, bool mirrored, std::size_t axis,
                                       std::int32_t tap);
/// The stage of a tile of `tile_n` points, for one depth of the kernel.
[[nodiscard]] HaloStage halo_stage(const Convolution& convolution, bool mirrored, std::int32_t tile_n);

/// The numbers of templates/spmm_halo.cuh that follow from a config.
struct HaloShape {
  std::int32_t threads = 0;
  std::int32_t stages_w = 0;  ///< steps of an output tile
  HaloStage stage;
  std::int64_t bytes_x = 0;       ///< of a stage, copied
  std::int64_t bytes_w = 0;       ///< of a step
  std::int64_t shared_bytes = 0;  ///< of all stages, dynamic
  ChunkShape chunk;
};

/// Throws `invalid_argument`, with what would work, where the numbers do not go together.
[[nodiscard]] HaloShape halo_shape(const Spmm& problem, const Target& target, const Config& config);

}  // namespace sparsekiln::cuda
