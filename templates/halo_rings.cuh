#pragma once

#include "lattice.cuh"
#include "ptx_mma.cuh"
#include "ring.cuh"

// The stages of shared memory of a convolution, between the copy engine and the tensor cores of sm_90.
//
// A stage of x has the positions that the taps of a tile reach, in as many boxes as a block has times 32
// features. A position is a line of 64 bytes, whose units of 16 bytes are exchanged by bits of the address
// (SWIZZLE_64B), so that wgmma finds them wherever it begins to read. A stage serves all steps of a column of
// blocks; in three dimensions one for each depth of the kernel.
//
// W comes step by step, which is a block row, or merged ones, of one tap. Each output tile of an item has a
// ring of its own, since it may lack blocks that another has. Beside each step the producer writes what it
// is, and after the last one of an item comes a step that says so.
//
// A warpgroup holds a stage of x until its next step with another one. Where it has none with the next stage,
// the producer sends it a step that only asks for what it holds: its next step may need the stage that takes
// that place.

namespace sparsekiln {

/// A tile of positions: the number of its image, and its first position.
template <class Config>
struct HaloPlace {
  enum : int {
    kWidth = 8,
    kHeight = Config::tile_n / kWidth,
    kAcross = (Config::output_w + kWidth - 1) / kWidth,  ///< tiles of an image's row
    kDown = (Config::output_h + kHeight - 1) / kHeight,
    kOfImage = kAcross * kDown * Config::output_d,
  };
  const int image;
  const int d, h, w;

  __device__ __forceinline__ explicit HaloPlace(int tile)
      : image(tile / kOfImage),
        d(tile / (kAcross * kDown) % Config::output_d),
        h(tile / kAcross % kDown * kHeight),
        w(tile % kAcross * kWidth) {}
  /// Positions of the image from the first one on.
  __device__ __forceinline__ int height_left() const { return Config::output_h - h; }
  __device__ __forceinline__ int width_left() const { return Config::output_w - w; }
  __device__ __forceinline__ int row_of_y() const {
    return ((image * Config::output_d + d) * Config::output_h + h) * Config::output_w + w;
  }
};

/// The positions of x that the taps of a tile reach, in a box of 32 features. Config names halo_h and halo_w,
/// the box's positions, and first_h and first_w, where it begins, from the tile's first position on.
template <class Config>
struct HaloBox {
  enum : int {
    kLineBytes = 64,                          ///< of a position
    kPitch = Config::halo_w * kLineBytes,     ///< from a row of positions to the next
    kCopied = Config::halo_h * kPitch,        ///< bytes
    kBytes = (kCopied + 1023) / 1024 * 1024,  ///< of shared memory
  };
  /// From the first position to the first one that a tap reads, in bytes.
  __device__ static __forceinline__ int displacement(int tap) {
    const typename Lattice<Config>::Shift by = Lattice<Config>::shift(tap);
    return (by.h - Config::first_h) * kPitch + (by.w - Config::first_w) * kLineBytes;
  }
  /// Queues the copy of features from `column` on, for a tile and the taps of a depth.
  __device__ static __forceinline__ void copy(unsigned shared, const TensorMap& map, int column,
                                              const HaloPlace<Config>& tile, int depth_tap, unsigned full) {
    enum : int { kPlane = Config::kernel_h * Config::kernel_w };
    ptx::copy_box_of_image(shared, map, column, tile.w + Config::first_w, tile.h + Config::first_h,
                           tile.d + Lattice<Config>::shift(depth_tap * kPlane).d, tile.image, full);
  }
};

/// What a warp that multiplies reads of a step.
struct HaloStep {
  unsigned bits;

  /// `displacement`: bytes, of less than 2^18.
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

/// The rings of a CTA.
template <class Config>
struct HaloRings {
  using Element = typename Config::Element;
  enum : int {
    kLineBytes = HaloBox<Config>::kLineBytes,
    kLine = kLineBytes / int{sizeof(Element)},  ///< features
    kBoxes = Config::block_in / kLine,          ///< of a stage
    kPitchX = HaloBox<Config>::kPitch,
    kCopiedX = HaloBox<Config>::kCopied,
    kBoxBytes = HaloBox<Config>::kBytes,
    kPlaceBytesX = kBoxes * kBoxBytes,
    kPlacesX = Config::stages,
    kRings = Config::rows,                   ///< of W
    kSharers = Warpgroups::kCount / kRings,  ///< warpgroups that read one
    kOutputs = Config::block_out * Config::merge,
    kPlacesW = Config::stages_w,
    kBytesW = kOutputs * Config::block_in * int{sizeof(Element)},
    /// From a line of a block's k to the next line of the same outputs; where blocks are read by columns,
    /// half a line of k's.
    kBoxBytesW = Config::by_columns ? kLine * kLineBytes : kOutputs * kLineBytes,
    kColumnBytes = Config::block_in * kLineBytes,  ///< by columns: from 32 outputs to the next
    kStepW = Config::by_columns ? 16 * kLineBytes / 16 : 32 / 16,
    kBytesOfGroup = Config::by_columns ? 2 * kColumnBytes : 64 * kLineBytes,  ///< 64 outputs
  };
  static_assert(kOutputs == 64 * kSharers, "a warpgroup has 64 outputs");
  using PlaceX = RingPlace<kPlacesX>;
  using PlaceW = RingPlace<kPlacesW>;

  const unsigned stages;  ///< of x, then of each ring of W
  const RingBarriers<kPlacesX + kRings * kPlacesW + 1> barriers;

  __device__ __forceinline__ HaloRings() : stages(swizzled_shared()) {}

  /// The ring of W that the calling warpgroup reads, and which 64 of its outputs.
  __device__ static __forceinline__ int own_ring() { return kRings == 1 ? 0 : Warpgroups::own(); }
  __device__ static __forceinline__ int own_half() { return kRings == 1 ? Warpgroups::own() : 0; }

  __device__ __forceinline__ unsigned x(int place) const { return stages + place * kPlaceBytesX; }
  __device__ __forceinline__ unsigned w(int ring, int place) const {
    return stages + kPlacesX * kPlaceBytesX + (ring * kPlacesW + place) * kBytesW;
  }
  __device__ __forceinline__ unsigned* step(int ring, int place) const {
    return step_memory() + ring * kPlacesW + place;
  }
  __device__ __forceinline__ unsigned full_x(int place) const { return barriers.full(place); }
  __device__ __forceinline__ unsigned empty_x(int place) const { return barriers.empty(place); }
  /// Waits until the stage of x of this number may be filled.
  __device__ __forceinline__ void wait_for_empty_x(int stage) const {
    ptx::wait_for_phase(empty_x(stage % kPlacesX), (stage / kPlacesX & 1) ^ 1);
  }
  __device__ __forceinline__ unsigned full_w(int ring, int place) const {
    return barriers.full(kPlacesX + ring * kPlacesW + place);
  }
  __device__ __forceinline__ unsigned empty_w(int ring, int place) const {
    return barriers.empty(kPlacesX + ring * kPlacesW + place);
  }

  /// A barrier that nothing waits for: where a warp says that it has read nothing.
  __device__ __forceinline__ unsigned unused() const { return barriers.full(kPlacesX + kRings * kPlacesW); }

  /// By one thread, before a barrier of the CTA.
  __device__ __forceinline__ void make_barriers() const {
    barriers.make([](int place) { return place < kPlacesX ? int{Warpgroups::kWarps} : 4 * kSharers; });
  }

 private:
  __device__ static __forceinline__ unsigned* step_memory() {
    __shared__ unsigned memory[kRings * kPlacesW];
    return memory;
  }
};

}  // namespace sparsekiln
