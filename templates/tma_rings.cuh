#pragma once

#include "ptx_cluster.cuh"
#include "ptx_mma.cuh"
#include "ptx_tma.cuh"
#include "ring.cuh"
#include "schedule.cuh"

// The stages of shared memory between the copy engine and the tensor cores of sm_90.
//
// Tiles of x and blocks of W are in two rings, since several blocks may be multiplied with one tile. Both are
// rows of 128 bytes along k, or of 64, of which eight are a swizzled unit (SWIZZLE_128B or SWIZZLE_64B of
// tensor maps and of wgmma). Blocks that are read by columns have rows of 128 bytes along the outputs
// instead, one for each k, and are in as many boxes, one after the other.
//
// CTAs of a cluster share what is in their rings: those with neighbouring batch tiles the blocks of W, those
// with other block rows the tiles of x. Each brings its share of the rows of a box to all that have it, so
// `full` of a place counts bytes from all of these, and `empty` their warps (ring.cuh). All have the tiles
// that they share at the same places; then each brings those that it alone needs, as many at a time. Where it
// has fewer blocks or fewer tiles than another, it takes places without any.

namespace sparsekiln {

/// A CTA in its cluster, whose numbers go through block rows first, and then through batch tiles.
template <class Config>
struct ClusterPlace {
  enum : int { kRows = Config::cluster_rows, kTiles = Config::cluster };

  const int number = kRows * kTiles == 1 ? 0 : ptx::cta_of_cluster();

  __device__ __forceinline__ int row() const { return kTiles == 1 ? number : number % kRows; }
  __device__ __forceinline__ int tile() const { return kTiles == 1 ? 0 : number / kRows; }
  /// Those that share x with this one, and W: so many, `i` of them, and a bit for each.
  __device__ __forceinline__ int with_x(int i) const { return tile() * kRows + i; }
  __device__ __forceinline__ int with_w(int i) const { return i * kRows + row(); }
  __device__ __forceinline__ unsigned all_with_x() const { return ((1u << kRows) - 1) << tile() * kRows; }
  __device__ __forceinline__ unsigned all_with_w() const {
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) bits |= 1u << with_w(i);
    return bits;
  }
};

/// What each place of a ring has, and who reads it.
template <class Config>
struct TmaLayout {
  using Element = typename Config::Element;
  using Groups = Warpgroups;
  enum : int {
    kLineBytes = Config::line_bytes,
    kLine = kLineBytes / int{sizeof(Element)},  ///< elements
    kDepth = kLine,                             ///< k's of a chunk
    kSegments = Config::block_in / kDepth,      ///< of a block, each of them a chunk
    kOutputs = Config::block_out * Config::merge,
    kRings = 1,
    kPlacesX = Config::stages,
    kPlacesW = Config::stages_w,
    kBytesX = Config::tile_n * kLineBytes,
    kBytesW = kOutputs * kLineBytes,
    kBoxesW = Config::by_columns ? kOutputs / kLine : int{Config::merge},
    kBytesBox = kBytesW / kBoxesW,
    kCtasX = Config::cluster_rows,
    kCtasW = Config::cluster,
    kReadersX = Groups::kWarps * kCtasX,
    kReadersW = Groups::kWarps * kCtasW,
  };
  enum : bool {
    kNamesSteps = Config::rows > 1 || kCtasX > 1,  ///< those that multiply have to know the step
  };
};
/// The rings of a CTA.
template <class Config>
struct TmaRings : OperandRings<TmaLayout<Config>> {
  unsigned* const steps = &TmaRings::word(0);  ///< Step::bits of the block in each place of W
};

/// Fills the rings: a warp that reads the schedule ahead, and of which one thread queues copies.
template <class Config>
class TmaProducer {
 public:
  using Rings = TmaRings<Config>;

  __device__ __forceinline__ TmaProducer(const Rings& to, const typename Config::Table& tables)
      : rings(to), table(tables) {}

  /// The chunks of a worker for the batch tile whose first row is `first`. Maps are of x, and of each
  /// weight.
  template <class... Weights>
  __device__ __forceinline__ void load(int worker, int first, const TensorMap& map_x,
                                       const Weights&... weights) {
    const int begin = table.worker(worker).chunk;
    const int end = table.worker(worker + 1).chunk;
    // NOTES: kept, so that addresses of steps are not computed once for all batch tiles: ptxas 13.0 would
    // spill them, where CTAs share both operands or block rows are merged.
    for (Steps steps(table, nullptr, ptx::kept(begin), end); !steps.done(); steps.advance()) {
      const Step step = steps.step(0);
      int block[Config::merge];
#pragma unroll
      for (int i = 0; i < Config::merge; ++i) block[i] = steps.block(0, i);
      if (ptx::is_elected()) {
        if (!step.same_input()) load_x(step, first, map_x);
        load_w(step, block, weights...);
      }
      if (!step.same_input()) x.advance();
      w.advance();
    }
  }

 private:
  using Steps = WorkerSteps<typename Config::Table, 1, Config::merge, Rings::kPlacesW, false>;
  enum : int { kShareX = Config::tile_n / Rings::kCtasX };  ///< rows that a CTA brings for all

  __device__ __forceinline__ void load_x(const Step& step, int first, const TensorMap& map) {
    const unsigned full = rings.full_x(x.place);
    ptx::wait_for_phase(rings.empty_x(x.place), x.parity ^ 1);
    const bool alone = Rings::kCtasX > 1 && step.alone();
    if (alone && !step.present()) {
      ptx::arrive(full);
      return;
    }
    ptx::arrive_and_expect(full, Rings::kBytesX);
    const int feature = step.column() * Config::block_in + step.segment() * Rings::kDepth;
    if (alone) {
#pragma unroll
      for (int share = 0; share < Rings::kCtasX; ++share)
        ptx::copy_box<1>(x_of(share), map, feature, first + share * kShareX, full);
    } else {
      const int share = cta.row();
      ptx::copy_box<Rings::kCtasX>(x_of(share), map, feature, first + share * kShareX, full,
                                   cta.all_with_x());
    }
  }
  /// Where a share of the rows of x is.
  __device__ __forceinline__ unsigned x_of(int share) const {
    return rings.x(x.place) + share * (Rings::kBytesX / Rings::kCtasX);
  }

  __device__ __forceinline__ void load_w(const Step& step, const int (&block)[Config::merge],
                                         const TensorMap& map) {
    const unsigned full = rings.full_w(w.place);
    ptx::wait_for_phase(rings.empty_w(w.place), w.parity ^ 1);
    if constexpr (Rings::kNamesSteps) rings.steps[w.place] = step.bits;
    if (Rings::kCtasX > 1 && !step.present()) {
      ptx::arrive(full);
      return;
    }
    ptx::arrive_and_expect(full, Rings::kBytesW);
    const int share = cta.tile();  // of the rows of a box
    const unsigned with = cta.all_with_w();
    const int first_k = step.segment() * Rings::kDepth;
#pragma unroll
    for (int i = 0; i < Rings::kBoxesW; ++i) {
      const unsigned to =
          rings.w(w.place) + i * Rings::kBytesBox + share * (Rings::kBytesBox / Rings::kCtasW);
      // An absent block of a merged step has number -1: its box is outside of the matrix, and becomes zeros.
      if constexpr (Config::by_columns) {
        enum : int { kOfBlock = Rings::kBoxesW / Config::merge };
        const int first_row =
            block[i / kOfBlock] * Config::block_in + first_k + share * (Rings::kDepth / Rings::kCtasW);
        ptx::copy_box<Rings::kCtasW>(to, map, i % kOfBlock * Rings::kLine, first_row, full, with);
      } else {
        enum : int { kSpans = Config::block_out / (4 * Config::interleave) };
        const int first_span = block[i] * kSpans + share * (kSpans / Rings::kCtasW);
        ptx::copy_box_in_order<Rings::kCtasW>(to, map, first_k, first_span, full, with);
      }
    }
  }
  /// With two weights, an item's tiles are of one and the other in turn.
  __device__ __forceinline__ void load_w(const Step& step, const int (&block)[Config::merge],
                                         const TensorMap& map, const TensorMap& second) {
    load_w(step, block, step.tile() % 2 == 0 ? map : second);
  }

  const Rings& rings;
  const typename Config::Table& table;
  const ClusterPlace<Config> cta;
  typename Rings::PlaceX x = Rings::PlaceX::first();  ///< that is filled next
  typename Rings::PlaceW w = Rings::PlaceW::first();
};

}  // namespace sparsekiln
