#pragma once

#include "lattice.cuh"
#include "ptx_mma.cuh"
#include "ptx_tma.cuh"
#include "ring.cuh"

// The stages of shared memory of a convolution, between the copy engine and the tensor cores of sm_90.
//
// A stage of x has the positions that the taps of a tile reach, in as many boxes as a block has times 32
// features. A position is a line of 64 bytes, whose units of 16 bytes are exchanged by bits of the address
// (SWIZZLE_64B), so that wgmma finds them wherever it begins to read. A stage serves all steps of a column of
// blocks; in three dimensions one for each depth of the kernel.
//
// Neighbouring points of a tile read positions that are a stride apart. So a stage has such boxes for each
// phase, which is what taps read of one residue modulo the stride, and the copy engine leaves out what is
// between those positions. Taps whose numbers are as far apart as there are phases read the same box.
//
//   a stride of 2 and a kernel of 3          the box of taps 0 and 2     . 1 3 5 7     . is outside of x
//   that begins in front of x                the box of tap 1            0 2 4 6 8
//
// W comes step by step, which is a block row, or merged ones, of one tap. Each output tile of an item has a
// ring of its own, since it may lack blocks that another has. Beside each step the producer writes what it
// is, and after the last one of an item comes a step that says so.
//
// A warpgroup holds a stage of x until its next step with another one. Where it has none with the next stage,
// the producer sends it a step that only asks for what it holds: its next step may need the stage that takes
// that place.

namespace sparsekiln {

/// A tile of points: the number of its image, and its first point.
template <class Config>
struct HaloPlace {
  enum : int {
    kWidth = 8,
    kHeight = Config::tile_n / kWidth,
    kAcross = (Config::points_w + kWidth - 1) / kWidth,  ///< tiles of an image's row
    kDown = (Config::points_h + kHeight - 1) / kHeight,
    kOfImage = kAcross * kDown * Config::points_d,
  };
  const int image;
  const int d, h, w;

  __device__ __forceinline__ explicit HaloPlace(int tile)
      : image(tile / kOfImage),
        d(tile / (kAcross * kDown) % Config::points_d),
        h(tile / kAcross % kDown * kHeight),
        w(tile % kAcross * kWidth) {}
  /// The position of y that the first point has in the first class, and how many there are from there on.
  __device__ __forceinline__ int row_of_y() const {
    return ((image * Config::output_d + d * Config::out_step_d) * Config::output_h + h * Config::out_step_h) *
               Config::output_w +
           w * Config::out_step_w;
  }
  __device__ __forceinline__ int depth_left() const { return Config::output_d - d * Config::out_step_d; }
  __device__ __forceinline__ int height_left() const { return Config::output_h - h * Config::out_step_h; }
  __device__ __forceinline__ int width_left() const { return Config::output_w - w * Config::out_step_w; }
};

/// What a stage has of one dimension. An offset is what a tap adds to the position of x that a point reads.
template <int kFirst, int kDilation, int kStep, int kPhases>
struct HaloAxis {
  /// The offset where the box of a phase begins.
  __device__ static __forceinline__ int begin(int phase) { return kFirst + phase * kDilation % kStep; }
  /// The phase that a tap reads, and which position of its box is the first point's.
  __device__ static __forceinline__ int phase(int offset) { return (offset - kFirst) / kDilation % kPhases; }
  __device__ static __forceinline__ int position(int offset) { return (offset - kFirst) / kStep; }
};

/// The positions of x that the taps of a tile reach, in boxes of 32 features: one for each phase, all of the
/// same extents. Config names halo_h and halo_w (positions of a box), phases_h and phases_w, first_h and
/// first_w (the least offset), and what a Lattice needs.
template <class Config>
struct HaloBox {
  using Down = HaloAxis<Config::first_h, Config::dilation_h, Config::in_step_h, Config::phases_h>;
  using Across = HaloAxis<Config::first_w, Config::dilation_w, Config::in_step_w, Config::phases_w>;
  enum : int {
    kLine = 32,       ///< features
    kLineBytes = 64,  ///< of a position
    kPhases = Config::phases_h * Config::phases_w,
    kPitch = Config::halo_w * kLineBytes,  ///< from a row of positions to the next
    kCopiedOfPhase = Config::halo_h * kPitch,
    kPhaseBytes = (kCopiedOfPhase + 1023) / 1024 * 1024,
    kBytes = kPhases * kPhaseBytes,  ///< of shared memory
    kCopied = kPhases * kCopiedOfPhase,
  };

  /// From the first position to the first one that the tap of a block column reads, in bytes.
  __device__ static __forceinline__ int displacement(int column) {
    const typename Lattice<Config>::Shift by = Lattice<Config>::shift(column);
    const int phase = Down::phase(by.h) * Config::phases_w + Across::phase(by.w);
    return phase * kPhaseBytes + Down::position(by.h) * kPitch + Across::position(by.w) * kLineBytes;
  }
  /// Queues the copies of features from `feature` on, for a tile and the depth of a block column's tap.
  __device__ static __forceinline__ void copy(unsigned to, const TensorMap& map, int feature,
                                              const HaloPlace<Config>& tile, int column, unsigned full) {
    const int depth = tile.d * Config::in_step_d + Lattice<Config>::shift(column).d;
#pragma unroll
    for (int phase = 0; phase < kPhases; ++phase) {
      const int h = tile.h * Config::in_step_h + Down::begin(phase / Config::phases_w);
      const int w = tile.w * Config::in_step_w + Across::begin(phase % Config::phases_w);
      ptx::copy_box_of_image(to + phase * kPhaseBytes, map, feature, w, h, depth, tile.image, full);
    }
  }
};

/// What a warp that multiplies reads of a step.
struct HaloStep {
  enum : int { kDisplacements = 1 << 18 };
  unsigned bits;

  /// `displacement`: bytes, of less than kDisplacements.
  __device__ static __forceinline__ HaloStep of(int displacement, int place, unsigned parity, bool brings_x) {
    return {static_cast<unsigned>(displacement) / 16 | static_cast<unsigned>(place) << 16 | parity << 20 |
            (brings_x ? 1u << 21 : 0u)};
  }
  /// Steps without products.
  __device__ static __forceinline__ HaloStep release() { return {1u << 22}; }
  __device__ static __forceinline__ HaloStep last() { return {3u << 22}; }

  /// From the first position of a stage to the first one that the tap reads.
  __device__ __forceinline__ int displacement() const { return static_cast<int>(bits & 0x3fff) * 16; }
  /// The place of x, and the parity of its round.
  __device__ __forceinline__ int place() const { return static_cast<int>(bits >> 16 & 15); }
  __device__ __forceinline__ unsigned parity() const { return bits >> 20 & 1; }
  /// Whether the step before it, of the same output tile, had another place of x.
  __device__ __forceinline__ bool brings_x() const { return (bits >> 21 & 1) != 0; }
  /// Whether it has no products, and those before it are waited for, so that the producer gets their stages.
  __device__ __forceinline__ bool releases() const { return (bits >> 22 & 1) != 0; }
  /// Whether it comes after the last one of an item as well.
  __device__ __forceinline__ bool ends() const { return (bits >> 23 & 1) != 0; }
};

/// What each place of a ring has, and who reads it.
template <class Config>
struct HaloLayout {
  using Box = HaloBox<Config>;
  enum : int {
    kLineBytes = Box::kLineBytes,
    kLine = Box::kLine,
    kBoxes = Config::block_in / kLine,       ///< of a stage of x
    kRings = Config::rows,                   ///< of W
    kSharers = Warpgroups::kCount / kRings,  ///< warpgroups that read one
    kOutputs = Config::block_out * Config::merge,
    kPlacesX = Config::stages,
    kPlacesW = Config::stages_w,
    kBytesX = kBoxes * Box::kBytes,
    kBytesW = kOutputs * kBoxes * kLineBytes,
    kReadersX = Warpgroups::kWarps,
    kReadersW = 4 * kSharers,
    kCtasX = 1,
    kCtasW = 1,
    /// From a line of a block's k to the next line of the same outputs; where blocks are read by columns,
    /// half a line of k's.
    kBoxBytesW = Config::by_columns ? kLine * kLineBytes : kOutputs * kLineBytes,
    kColumnBytes = Config::block_in * kLineBytes,  ///< by columns: from 32 outputs to the next
    kStepW = Config::by_columns ? 16 * kLineBytes / 16 : 32 / 16,
    kBytesOfGroup = Config::by_columns ? 2 * kColumnBytes : 64 * kLineBytes,  ///< 64 outputs
  };
  static_assert(kOutputs == 64 * kSharers, "a warpgroup has 64 outputs");
  static_assert(Box::kBytes <= HaloStep::kDisplacements, "a step has room for a displacement");

  /// The ring of W that the calling warpgroup reads, and which 64 of its outputs.
  __device__ static __forceinline__ int own_ring() { return kRings == 1 ? 0 : Warpgroups::own(); }
  __device__ static __forceinline__ int own_half() { return kRings == 1 ? Warpgroups::own() : 0; }
};
/// The rings of a CTA. The word of a place of W is HaloStep::bits. NOTES: a barrier's address begins with
/// that of its ring, which stays the same: from the number of a place, it would be computed again for each
/// step.
template <class Config>
struct HaloRings : OperandRings<HaloLayout<Config>, 1> {
  /// A barrier that nothing waits for: where a warp says that it has read nothing.
  __device__ __forceinline__ unsigned unused() const {
    return this->barriers.full(HaloRings::kPlacesX + HaloRings::kNumbersW);
  }
  __device__ __forceinline__ unsigned full_w(int ring, int place) const {
    return this->barriers.full(HaloRings::kPlacesX + ring * HaloRings::kPlacesW + place);
  }
  __device__ __forceinline__ unsigned empty_w(int ring, int place) const {
    return this->barriers.empty(HaloRings::kPlacesX + ring * HaloRings::kPlacesW + place);
  }
  __device__ __forceinline__ unsigned* step(int ring, int place) const {
    return &this->word(0) + ring * HaloRings::kPlacesW + place;
  }
};

}  // namespace sparsekiln
