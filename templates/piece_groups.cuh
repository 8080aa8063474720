#pragma once

#include "sddmm_warpgroups.cuh"

// Gradients of the weight whose CTAs sum many pieces of blocks at once (compiler/block_groups.h). A CTA has
// groups of up to Config::width pieces, one after the other. A place of its ring is what the pieces of a
// group read of a chunk: tiles of dy, and after them those of x. A product is of two pieces that share a
// tile.
//
//   warpgroups 0 to 2   multiply, each its third of the pairs, whose sums are in registers
//   warpgroup 3         one warp fills the ring; the other three sum dy where the gradient of a bias is asked
//
// Where pieces are few, several CTAs share a group, a slice of the chunks each.

namespace sparsekiln {

/// What a CTA sums at once.
struct __align__(16) PieceGroup {
  int first;   ///< of its tiles, among those of all groups
  int tiles;   ///< of dy and x
  int of_dy;   ///< of these: they are in front
  int summed;  ///< of these, in front: whose sum over the batch this group computes, for a bias
};
/// Two pieces of a group, or one: a product.
struct PiecePair {
  int tiles;  ///< the tile that both share, 1 << 8 times that of the first piece and 1 << 16 of the second,
              ///< which is not before it; 1 << 24 times 1 where what they share is x
  int first;  ///< where the first element of the first piece is in dw, in rows of a piece; -1: there is none
  int second;
  int taps;  ///< of a convolution, by which the pieces read their tiles: the first's, and 1 << 16 the
             ///< second's
};

/// AttachedRuns of groups.
struct AttachedGroups : AttachedRuns {
  __device__ __forceinline__ PieceGroup group(int index) const {
    const int4 group = items[index];
    return {group.x, group.y, group.z, group.w};
  }
  __device__ __forceinline__ int tile(int index) const { return columns[index]; }
  __device__ __forceinline__ PiecePair pair(int index) const {
    const int4 pair = pairs[index];
    return {pair.x, pair.y, pair.z, pair.w};
  }
};

/// The four warpgroups of a CTA: three that multiply, and one that has the other warps.
struct PieceWarps : WarpgroupsOf<3> {
  enum : int { kAdding = 3 };  ///< warps that sum dy
  /// The number of a thread's warpgroup: that of one lane, so that what depends on it is uniform.
  __device__ static __forceinline__ int own() { return __shfl_sync(0xffffffff, WarpgroupsOf<3>::own(), 0); }
};

/// The ring of a CTA. A tile of dy has kBoxes boxes of 32 words or 16, which are a line, by kRows.
template <class Config, int kWords, int kRows, int kBoxes, int kPlaceBytes>
struct PieceRing {
  enum : int {
    kWordsOfLine = kWords,
    kLineBytes = 4 * kWords,
    kRowsOfBox = kRows,
    kBytesBoxDy = kRows * kLineBytes,
    kBoxesDy = kBoxes,
    kBytesPlace = kPlaceBytes,
  };
  using Place = RingPlace<Config::stages>;

  const unsigned tiles = swizzled_shared();
  const RingBarriers<Config::stages> barriers;
};

/// The sums of boxes of dy over chunks, which three warps have in shared memory, since registers are few: of
/// every third box each. A lane adds the two features of a word, of every row, or of every other one where
/// half a warp reads a line.
template <class Config, class Ring>
class BoxSums {
 public:
  /// What a group sums.
  __device__ __forceinline__ BoxSums(int of_warp, int tiles) : warp(of_warp), boxes(tiles * Ring::kBoxesDy) {
    for (int box = warp; box < boxes; box += PieceWarps::kAdding)
      if (holds()) at(box) = float2{0, 0};
  }
  /// Adds what a place of the ring has.
  __device__ __forceinline__ void add(const Ring& ring, int place) {
    const int word = own_lane() % kWords;
#pragma unroll 1
    for (int box = warp; box < boxes; box += PieceWarps::kAdding) {
      const unsigned from = ring.tiles + place * Ring::kBytesPlace + box * Ring::kBytesBoxDy;
      float2 sum = kRowsAtOnce == 1 ? at(box) : float2{0, 0};
#pragma unroll 2
      for (int row = own_lane() / kWords; row < Ring::kRowsOfBox; row += kRowsAtOnce) {
        const int unit = word / 4 ^ row / kRowsAtOnce % (kWords / 4);  // as lines are swizzled
        unsigned bits;
        ptx::load_word<0>(bits, from + row * Ring::kLineBytes + unit * 16 + word % 4 * 4);
        sum.x += Config::Operand::of_word(bits, 0);
        sum.y += Config::Operand::of_word(bits, 1);
      }
      if constexpr (kRowsAtOnce == 2) {
        sum.x += __shfl_xor_sync(0xffffffff, sum.x, kWords);
        sum.y += __shfl_xor_sync(0xffffffff, sum.y, kWords);
        if (!holds()) continue;
        sum.x += at(box).x;
        sum.y += at(box).y;
      }
      at(box) = sum;
    }
    __syncwarp();  // all lanes have read dy
  }
  /// Calls use(box, feature, sum) for each sum of this lane.
  template <class Use>
  __device__ __forceinline__ void each(Use use) const {
#pragma unroll 1
    for (int box = warp; box < boxes; box += PieceWarps::kAdding) {
      if (!holds()) continue;
      use(box, 2 * own_lane(), at(box).x);
      use(box, 2 * own_lane() + 1, at(box).y);
    }
  }

 private:
  enum : int {
    kWords = Ring::kWordsOfLine,
    kRowsAtOnce = 32 / kWords,
  };
  __device__ static __forceinline__ bool holds() { return own_lane() < kWords; }
  /// The two sums of a lane that holds some.
  __device__ static __forceinline__ float2& at(int box) {
    __shared__ float2 sums[Config::width * Ring::kBoxesDy][kWords];
    return sums[box][own_lane()];
  }

  const int warp;
  const int boxes;
};

/// The work of a CTA: the groups of worker blockIdx.x / slices, for one slice of their chunks, unless there
/// is none. make(): the Work.
template <class Config, PieceWork Work, class Make, class... Maps>
__device__ __forceinline__ void sum_groups(const typename Config::Table& table, bool has_slice, Make make,
                                           const Maps&... maps) {
  using Ring = typename Work::Ring;
  using Sums = typename Work::Sums;
  const int worker = static_cast<int>(blockIdx.x) / most_slices<Config>(table);
  const int first = table.worker(worker);
  const int end = table.worker(worker + 1);
  const Ring ring;
  constexpr int kReaders = PieceWarps::kWarps + (Config::has_bias_gradient ? PieceWarps::kAdding : 0);
  if (!begin_ring<Config, kReaders>(ring, has_slice)) return;
  const Work work = make();
  PieceWarps::run<1 + PieceWarps::kAdding, Work::kOtherRegisters>(
      [&] {
        const int warp = static_cast<int>(threadIdx.x) / 32 - PieceWarps::kWarps;
        if (warp == 0) {
          typename Ring::Place at = Ring::Place::first();  // that is filled next
#pragma unroll 1
          for (int group = first; group < end; ++group) work.load(ring, at, table.group(group), maps...);
        } else if constexpr (Config::has_bias_gradient) {
          typename Ring::Place at = Ring::Place::before_first();  // that is read
#pragma unroll 1
          for (int group = first; group < end; ++group) {
            const PieceGroup of = table.group(group);
            BoxSums<Config, Ring> bias(warp - 1, of.summed);
            read_chunks(ring, at, work.chunks(), [&](int place) { bias.add(ring, place); });
            work.store_bias(group, of, bias);
          }
        }
      },
      [&] {
        const int warpgroup = PieceWarps::own();
        typename Ring::Place at = Ring::Place::before_first();
#pragma unroll 1
        for (int group = first; group < end; ++group) {
          const PieceGroup of = table.group(group);
          if (Work::only_sums_dy(of)) {
            read_chunks(ring, at, work.chunks(), [](int) {});
            continue;
          }
          const int pair = (group * PieceWarps::kCount + warpgroup) * Sums::kPairs;
          Sums sums(ring, table, pair, of);
          multiply_chunks(ring, at, work.chunks(), sums, [](int) {});
          work.store(group, pair, sums);
        }
      });
}

}  // namespace sparsekiln
