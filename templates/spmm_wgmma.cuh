#pragma once

#include "output.cuh"
#include "product.cuh"
#include "ptx_wgmma.cuh"
#include "spmm_warpgroups.cuh"
#include "tma_rings.cuh"
#include "wgmma_descriptors.cuh"
#include "wgmma_fragment.cuh"

// SpMM on the tensor cores of sm_90a, accumulated in float32, or of 8-bit integers in int32: y = x · Bᵀ for
// blocks of 64 outputs and more, where B is W, or Wᵀ if blocks are read by columns.
//
// A CTA has three warpgroups. Two multiply: batch rows are the rows of their products, and the outputs of a
// block row, or of merged ones, the columns. The third produces: one warp of it reads the schedule and has
// the copy engine fill stages ahead (tma_rings.cuh). It needs few registers, and leaves the others to the
// sums. Products are queued, and complete while the next chunk is waited for. Products of 8-bit floats are
// added up within a chunk only, Float8Product::kPromoted elements of k or half as many; then CUDA cores add
// them to the sums, while the other warpgroup multiplies.

namespace sparsekiln {

/// The descriptors of one chunk: for each step of 32 bytes along k, and each 64 batch rows of a warpgroup.
template <class Config, int kSteps, int kSubtiles>
class ChunkDescriptors {
 public:
  using Rings = TmaRings<Config>;
  enum : int {
    kSubtileBytes = 64 * Rings::kLineBytes,
    kStepX = 32 / 16,
    kStepW = Config::by_columns ? 2 * swizzled_unit(Rings::kLineBytes) / 16 : int{kStepX},
  };

  StepDescriptors<Rings::kLineBytes, kSteps, kStepX> x[kSubtiles];
  StepDescriptors<Rings::kLineBytes, kSteps, kStepW> w[kSubtiles];

  /// For the calling warpgroup. For W a lane for each subtile, so that ptxas does not know that addresses are
  /// the same.
  __device__ __forceinline__ explicit ChunkDescriptors(const Rings& rings)
      : first_x(__shfl_sync(0xffffffff, rings.x(0) + Warpgroups::own() * (kSubtiles * kSubtileBytes), 0)) {
#pragma unroll
    for (int i = 0; i < kSubtiles; ++i) first_w[i] = __shfl_sync(0xffffffff, rings.w(0), i);
  }

  __device__ __forceinline__ void point_x_at(int place) {
#pragma unroll
    for (int i = 0; i < kSubtiles; ++i) x[i].point_at(first_x + place * Rings::kBytesX + i * kSubtileBytes);
  }
  __device__ __forceinline__ void point_w_at(int place) {
#pragma unroll
    for (int i = 0; i < kSubtiles; ++i)
      w[i].point_at(first_w[i] + place * Rings::kBytesW, Config::by_columns ? int{Rings::kBytesBox} : 0);
  }

 private:
  const unsigned first_x;
  unsigned first_w[kSubtiles];
};

/// The output tiles of a main loop, kRows of them, as wgmma distributes them over two warpgroups: each has
/// kSubtiles × 64 batch rows and all outputs (PTX ISA, "Register Fragments and Shared Memory Matrix Layouts":
/// D of m64nNk16).
template <class Config>
struct WgmmaTile {
  using Rings = TmaRings<Config>;
  enum : int {
    kSubtileRows = 64,
    kOutputs = Rings::kOutputs,
    kSubtiles = Config::tile_n / (Warpgroups::kCount * kSubtileRows),
    kSums = kOutputs / 2,  ///< of a thread and subtile
    kRows = Config::rows,
    kN = 2 * kSubtiles,
    kOut = kOutputs / 4,
    kRun = Config::interleave,
    kHolders = Warpgroups::kThreads,
    kSteps = Rings::kLineBytes / 32,  ///< instructions along the k of a chunk, 32 bytes each
  };
  using Sum = typename Config::Product::Sum;
  enum : bool {
    kExchanges = Config::by_columns && kRun == 4,
    kPromotes = Config::Product::kPromoted != 0,
  };
  static_assert(!kPromotes || int{Rings::kDepth} <= int{Config::Product::kPromoted}, "sums of a chunk");

  const int lane = static_cast<int>(threadIdx.x % 32);
  /// The first batch row of the warpgroup.
  const int first_row = Warpgroups::own() * kSubtiles * kSubtileRows;
  Sum sums[kRows][kSubtiles][kSums];
  Sum products[kPromotes ? int{kSubtiles} : 1][kSums];  ///< of a chunk, before they are added to sums

  __device__ __forceinline__ int n_of(int j) const {
    return first_row + j / 2 * kSubtileRows + static_cast<int>(threadIdx.x / 32 % 4) * 16 + j % 2 * 8 +
           lane / 4;
  }
  /// The copy engine reorders rows of W for it (sparsekiln::TensorMap::interleave). Columns of W stay as they
  /// are, but lanes may exchange halves.
  __device__ __forceinline__ int out_of(int i) const { return fragment_column<kRun, kExchanges>(lane, i); }
  __device__ __forceinline__ Sum& at(int r, int j, int i) { return sums[r][j / 2][fragment_value(j % 2, i)]; }
  __device__ __forceinline__ Sum at(int r, int j, int i) const {
    return const_cast<WgmmaTile*>(this)->at(r, j, i);
  }
  __device__ __forceinline__ void clear() {
    clear_sums(sums);
    pin();
  }
  /// Distributes sums as `out_of` says: of two tiles of eight outputs, a lane gets four neighbours of one.
  __device__ __forceinline__ void gather() {
    if constexpr (kExchanges) {
#pragma unroll
      for (int v = 0; v < kRows * kN * kOut; ++v) {
        const int i = v % kOut;
        if (i % kRun < kRun / 2)
          exchange_halves(lane, at(v / kOut / kN, v / kOut % kN, i),
                          at(v / kOut / kN, v / kOut % kN, i + kRun / 2));
      }
    }
  }
  __device__ __forceinline__ void pin() { ptx::pin(sums); }

  using Descriptors = ChunkDescriptors<Config, kSteps, kSubtiles>;

  /// Queues the products of a chunk as a group.
  __device__ __forceinline__ void multiply(const Descriptors& chunk, int row) {
    if constexpr (kPromotes) {
      multiply_into(products, chunk);
    } else {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        if (kRows == 1 || r == row) multiply_into(sums[r], chunk);
    }
  }
  /// Adds the products of a chunk, which are complete, to sums.
  __device__ __forceinline__ void promote(int row) {
    ptx::pin(products);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (kRows == 1 || r == row) {
#pragma unroll
        for (int v = 0; v < kSubtiles * kSums; ++v)
          sums[r][v / kSums][v % kSums] += products[v / kSums][v % kSums];
      }
  }

 private:
  __device__ static __forceinline__ void multiply_into(Sum (&into)[kSubtiles][kSums],
                                                       const Descriptors& chunk) {
    ptx::begin_products();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int subtile = 0; subtile < kSubtiles; ++subtile)
        ptx::queue_product<Config::operands, Config::by_columns>(
            into[subtile], chunk.x[subtile].of[step], chunk.w[subtile].of[step], !kPromotes || step > 0);
    ptx::commit_products();
  }
};

/// The threads that multiply combine the parts of an item.
template <class Config>
struct Combiners<WgmmaTile<Config>> {
  __device__ static __forceinline__ void sync() { Warpgroups::sync(); }
};

/// Where a warp that multiplies is in the rings.
template <class Config>
class TmaReader {
 public:
  using Rings = TmaRings<Config>;
  using Tile = WgmmaTile<Config>;

  __device__ __forceinline__ explicit TmaReader(const Rings& from) : rings(from), chunk(from) {}

  /// The work of a worker on one batch tile. One that does not exist is there for the others of a cluster,
  /// and nothing is written. Chunks have a loop within that of items: where both were one, as in `compute`,
  /// ptxas would wait for all products at every chunk.
  __device__ __forceinline__ void multiply_items(const typename Config::Table& table, int worker, bool exists,
                                                 const Destination<Config>& to) {
    const WorkerBegin begin = table.worker(worker);
    const WorkerBegin end = table.worker(worker + 1);
#pragma unroll 1
    for (int item = begin.item; item < end.item; ++item) {
      // Read here rather than ahead: the epilogue has no register for it.
      const int first = item == begin.item ? begin.chunk : table.item_end(item - 1);
      Tile tile;
      tile.clear();
#pragma unroll 1
      for (int left = table.item_end(item) - first; left > 0; --left) multiply(tile);
      drain(tile);
      if (!exists) continue;
      tile.gather();
      finish(table, item, ItemPlace<Config>(table, item), tile, to);
    }
  }

 private:
  enum : unsigned { kNothing = 1 };  ///< the address of no barrier
  /// Products of a chunk are complete before those of the next one are queued, and no other reads its tile.
  enum : bool { kReleasesAtOnce = Tile::kPromotes && Config::rows == 1 };

  /// Waits for the next chunk and queues its products; then waits for those of the chunk before, or, if they
  /// are added to sums, for its own, and gives back what only they read.
  __device__ __forceinline__ void multiply(Tile& tile) {
    w.advance();
    chunk.point_w_at(w.place);
    if constexpr (Config::rows == 1) next_x();
    if constexpr (kReleasesAtOnce) {
      read_w = computed_here(empty_w());
      read_x = computed_here(empty_x());
    }
    ptx::wait_for_phase(rings.full_w(w.place), w.parity);
    Step step{0};
    if constexpr (Rings::kNamesSteps) step.bits = rings.steps[w.place];
    const bool same_x = Config::rows > 1 && step.same_input();
    if (!same_x) {
      if constexpr (Config::rows > 1) next_x();
      ptx::wait_for_phase(rings.full_x(x.place), x.parity);
    }
    if (Rings::kCtasX == 1 || step.present()) {
      tile.multiply(chunk, step.tile());
      ptx::wait_products<Tile::kPromotes ? 0 : 1>();
    } else {
      ptx::wait_products<0>();
    }
    if constexpr (Rings::kNamesSteps) __syncwarp();  // all lanes have read the step
    if constexpr (kReleasesAtOnce) {
      release<Rings::kCtasW>(read_w);
      release<Rings::kCtasX>(read_x);
    } else {
      if (read_w != kNothing) {
        release<Rings::kCtasW>(read_w);
        if (!same_x) release<Rings::kCtasX>(read_x);
      }
      read_w = empty_w();
      read_x = empty_x();
    }
    if (Tile::kPromotes && (Rings::kCtasX == 1 || step.present())) tile.promote(step.tile());
  }
  /// Waits for all products: sums can be read. Gives everything back.
  __device__ __forceinline__ void drain(Tile& tile) {
    if constexpr (!Tile::kPromotes) ptx::wait_products<0>();
    tile.pin();
    if (kReleasesAtOnce || read_w == kNothing) return;
    release<Rings::kCtasW>(read_w);
    release<Rings::kCtasX>(read_x);
    read_w = kNothing;
  }
  __device__ __forceinline__ void next_x() {
    x.advance();
    chunk.point_x_at(x.place);
  }
  /// Where the lane says that a place is read: as many lanes of a warp do as CTAs bring a share of it.
  __device__ __forceinline__ unsigned empty_x() const {
    const unsigned own = rings.empty_x(x.place);
    if constexpr (Rings::kCtasX == 1)
      return own;
    else
      return ptx::address_in_cta(own, cta.with_x(static_cast<int>(threadIdx.x % Rings::kCtasX)));
  }
  __device__ __forceinline__ unsigned empty_w() const {
    const unsigned own = rings.empty_w(w.place);
    if constexpr (Rings::kCtasW == 1)
      return own;
    else
      return ptx::address_in_cta(own, cta.with_w(static_cast<int>(threadIdx.x % Rings::kCtasW)));
  }

  const Rings& rings;
  const ClusterPlace<Config> cta;
  typename Rings::PlaceX x = Rings::PlaceX::before_first();  ///< that is read
  typename Rings::PlaceW w = Rings::PlaceW::before_first();
  typename Tile::Descriptors chunk;  ///< that is multiplied next
  // Where to say that what the queued products read is free.
  unsigned read_x = kNothing;
  unsigned read_w = kNothing;
};

/// Config names block_in, cluster (CTAs that share W, with neighbouring batch tiles), cluster_rows (CTAs that
/// share x, with other block rows: the workers of a team), stages (tiles of x) and
/// stages_w (blocks of W, or merged ones) of the rings, interleave (neighbouring outputs of a thread: of 16
/// bytes, or by columns 2, or 4 of 16 bits), line_bytes (of a chunk along k), operands (a
/// ptx::WgmmaOperands), the Product and its Element, and what `spmm` needs. Maps are of x in boxes of tile_n
/// rows, and of each weight in boxes of a block's rows, both shared out to the CTAs that share them; both
/// have line_bytes along k.
template <class Config, class... Weights>
__device__ __forceinline__ void spmm_wgmma(const typename Config::Element*, const typename Config::Element* w,
                                           typename Config::Output::Element* y, void* workspace, int n,
                                           long long, long long y_stride,
                                           const EpilogueArguments<Config>& epilogue,
                                           typename Config::Table table, const TensorMap& map_x,
                                           const Weights&... maps_w) {
  spmm_in_warpgroups<Config, TmaRings<Config>, TmaProducer<Config>, TmaReader<Config>>(
      w, y, workspace, n, y_stride, epilogue, table, map_x, maps_w...);
}

}  // namespace sparsekiln
