#pragma once

#include "output.cuh"
#include "product.cuh"
#include "ptx_wgmma.cuh"
#include "spmm.cuh"
#include "tma_rings.cuh"
#include "wgmma_fragment.cuh"

// SpMM on the tensor cores of sm_90a, accumulated in float32: y = x · Bᵀ for blocks of 64 outputs and more,
// where B is W, or Wᵀ if blocks are read by columns.
//
// A CTA has three warpgroups. Two multiply: batch rows are the rows of their products, and the outputs of a
// block row, or of merged ones, the columns. The third produces: one thread of it reads the schedule and has
// the copy engine fill stages ahead (tma_rings.cuh). It needs few registers, and leaves the others to the
// sums. Products are queued, and complete while the next chunk is waited for.

namespace sparsekiln {

/// The output tiles of a main loop, kRows of them, as wgmma distributes them over two warpgroups: each has
/// kSubtiles × 64 batch rows and all outputs (PTX ISA, "Register Fragments and Shared Memory Matrix Layouts":
/// D of m64nNk16).
template <class Config>
struct WgmmaTile {
  using Rings = TmaRings<Config>;
  enum : int {
    kWarpgroups = 2,
    kSubtileRows = 64,
    kOutputs = Rings::kOutputs,
    kSubtiles = Config::tile_n / (kWarpgroups * kSubtileRows),
    kSums = kOutputs / 2,  ///< of a thread and subtile
    kRows = Config::rows,
    kN = 2 * kSubtiles,
    kOut = kOutputs / 4,
    kRun = Config::run,
    kHolders = Warpgroups::kThreads,
    kSteps = Rings::kLineBytes / 32,  ///< instructions along the k of a chunk, 32 bytes each
  };
  enum : bool { kExchanges = Config::by_columns && kRun == 4 };

  const int lane = static_cast<int>(threadIdx.x % 32);
  /// The first batch row of the warpgroup.
  const int first_row = Warpgroups::own() * kSubtiles * kSubtileRows;
  float sums[kRows][kSubtiles][kSums];

  __device__ __forceinline__ int n_of(int j) const {
    return first_row + j / 2 * kSubtileRows + static_cast<int>(threadIdx.x / 32 % 4) * 16 + j % 2 * 8 +
           lane / 4;
  }
  /// The copy engine reorders rows of W for it (sparsekiln::TensorMap::run). Columns of W stay as they are,
  /// but lanes may exchange halves.
  __device__ __forceinline__ int out_of(int i) const { return fragment_column<kRun, kExchanges>(lane, i); }
  __device__ __forceinline__ float& at(int r, int j, int i) {
    return sums[r][j / 2][fragment_value(j % 2, i)];
  }
  __device__ __forceinline__ float at(int r, int j, int i) const {
    return const_cast<WgmmaTile*>(this)->at(r, j, i);
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < kRows * kSubtiles * kSums; ++v)
      sums[v / kSums / kSubtiles][v / kSums % kSubtiles][v % kSums] = 0;
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
  /// An optimization barrier: nothing reads sums earlier, or writes them later.
  __device__ __forceinline__ void pin() {
#pragma unroll
    for (int v = 0; v < kRows * kSubtiles * kSums; ++v)
      asm volatile("" : "+f"(sums[v / kSums / kSubtiles][v / kSums % kSubtiles][v % kSums]));
  }

  /// Queues the products of a chunk, x and W of which are at these addresses, as a group.
  __device__ __forceinline__ void multiply(unsigned x, unsigned w, int row) {
    const unsigned long long a = swizzled_descriptor(x + first_row * Rings::kLineBytes);
    const unsigned long long b = swizzled_descriptor(w, Config::by_columns ? int{Rings::kBytesBox} : 0);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (kRows == 1 || r == row) multiply_into(sums[r], a, b);
  }

 private:
  __device__ static __forceinline__ void multiply_into(float (&into)[kSubtiles][kSums], unsigned long long a,
                                                       unsigned long long b) {
    // From one step to the next, and to the next subtile, as descriptors count: in units of 16 bytes.
    enum : int {
      kAlongRows = 32 / 16,
      kStepW = Config::by_columns ? 2 * kSwizzledUnit / 16 : int{kAlongRows},
      kSubtile = kSubtileRows * Rings::kLineBytes / 16,
    };
    ptx::begin_products();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int subtile = 0; subtile < kSubtiles; ++subtile)
        ptx::queue_product<Config::operands, Config::by_columns>(
            into[subtile], a + subtile * kSubtile + step * kAlongRows, b + step * kStepW, 1);
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

  __device__ __forceinline__ explicit TmaReader(const Rings& from) : rings(from) {}

  /// Waits for the next chunk and queues its products; then waits for those of the chunk before, and gives
  /// back what only they read.
  __device__ __forceinline__ void multiply(Tile& tile) {
    const unsigned read_w = rings.empty_w(w.place);
    const unsigned read_x = rings.empty_x(x.place);
    w.advance();
    ptx::wait_for_phase(rings.full_w(w.place), w.parity);
    Step step{0};
    if constexpr (Config::rows > 1) step.bits = rings.steps[w.place];
    const bool same_x = Config::rows > 1 && step.same_input();
    if (!same_x) {
      x.advance();
      ptx::wait_for_phase(rings.full_x(x.place), x.parity);
    }
    tile.multiply(rings.x(x.place), rings.w(w.place), step.tile());
    ptx::wait_products<1>();
    if constexpr (Config::rows > 1) __syncwarp();  // all lanes have read the step
    if (reads) release_w(read_w);
    if (reads && !same_x) release_x(read_x);
    reads = true;
  }
  /// Waits for all products: sums can be read. Gives everything back.
  __device__ __forceinline__ void drain(Tile& tile) {
    ptx::wait_products<0>();
    tile.pin();
    if (!reads) return;
    release_w(rings.empty_w(w.place));
    release_x(rings.empty_x(x.place));
    reads = false;
  }

 private:
  __device__ __forceinline__ void release_x(unsigned barrier) {
    if (threadIdx.x % 32 == 0) ptx::arrive(barrier);
  }
  /// To every CTA of the cluster, since each brings a share: as many lanes of a warp arrive.
  __device__ __forceinline__ void release_w(unsigned barrier) {
    if constexpr (Rings::kCtas == 1)
      release_x(barrier);
    else if (const int cta = static_cast<int>(threadIdx.x % 32); cta < Rings::kCtas)
      ptx::arrive_at(barrier, cta);
  }

  const Rings& rings;
  typename Rings::PlaceX x = Rings::PlaceX::before_first();  ///< that is read
  typename Rings::PlaceW w = Rings::PlaceW::before_first();
  bool reads = false;  ///< products of these places may be incomplete
};

/// What `wait_with_weight_ahead` asks of operands.
struct TmaChunks {
  enum : int { kBlocks = 1, kStride = 1 };
};

/// The work of a worker on one batch tile, of the warps that multiply. Chunks have a loop within that of
/// items: where both were one, as in `compute`, ptxas would wait for all products at every chunk. A tile that
/// does not exist is there for the others of a cluster, and nothing is written.
template <class Config>
__device__ __forceinline__ void multiply_chunks(const typename Config::Table& table, int worker,
                                                TmaReader<Config>& reader, bool exists,
                                                const Destination<Config>& to) {
  const WorkerBegin begin = table.worker(worker);
  const WorkerBegin end = table.worker(worker + 1);
  int chunk = begin.chunk;
  int next_end = table.item_end(begin.item);
#pragma unroll 1
  for (int item = begin.item; item < end.item; ++item) {
    const int item_end = next_end;
    next_end = table.item_end(item + 1);
    WgmmaTile<Config> tile;
    tile.clear();
#pragma unroll 1
    for (; chunk < item_end; ++chunk) reader.multiply(tile);
    reader.drain(tile);
    if (!exists) continue;
    tile.gather();
    finish(table, item, tile, to);
  }
}

/// A barrier of all threads of a cluster, which may be a CTA.
template <class Config>
__device__ __forceinline__ void sync_ctas() {
  if constexpr (Config::cluster == 1)
    __syncthreads();
  else
    ptx::sync_cluster();
}

/// Config names block_in, cluster (CTAs that share W, with neighbouring batch tiles), stages (tiles of x) and
/// stages_w (blocks of W, or merged ones) of the rings, run (neighbouring outputs of a thread: of 16 bytes,
/// or by columns 2, or 4 of 16 bits), operands (a ptx::WgmmaOperands), the Element, and what `spmm` needs.
/// Maps are of x in boxes of tile_n rows, and of each weight in boxes of a block's rows, shared out to the
/// CTAs of a cluster; both have 128 bytes along k.
template <class Config, class... Weights>
__device__ __forceinline__ void spmm_wgmma(const typename Config::Element*, const typename Config::Element* w,
                                           typename Config::Output::Element* y, void* workspace, int n,
                                           long long, long long y_stride,
                                           const EpilogueArguments<Config>& epilogue,
                                           typename Config::Table table, const TensorMap& map_x,
                                           const Weights&... maps_w) {
  const int worker = static_cast<int>(blockIdx.x);
  const int tiles = (n + Config::tile_n - 1) / Config::tile_n;
  const Images<Config> images(epilogue.images);
  const TmaRings<Config> rings;
  if (threadIdx.x == 0) rings.make_barriers();
  if constexpr (Config::overlaps) wait_with_weight_ahead<Config, TmaChunks>(table, worker, w, epilogue.v);
  sync_ctas<Config>();
  // All CTAs of a cluster go through as many tiles, beyond the last one if need be.
  const int step = static_cast<int>(gridDim.y);
  const int first = static_cast<int>(blockIdx.y);
  const int end = tiles + first % Config::cluster;
  Warpgroups::run(
      [&] {
        TmaProducer<Config> producer(rings);
#pragma unroll 1
        for (int batch_tile = first; batch_tile < end; batch_tile += step)
          producer.load(table, worker, batch_tile * Config::tile_n, map_x, maps_w...);
      },
      [&] {
        TmaReader<Config> reader(rings);
#pragma unroll 1
        for (int batch_tile = first; batch_tile < end; batch_tile += step)
          multiply_chunks<Config>(
              table, worker, reader, batch_tile < tiles,
              destination_of<Config>(y, y_stride, workspace, n, batch_tile, images, epilogue));
      });
  // No CTA ends while another may arrive on its barriers.
  if constexpr (Config::cluster > 1) sync_ctas<Config>();
}

}  // namespace sparsekiln
