#pragma once

#include "epilogue.cuh"
#include "schedule.cuh"

// The walk that the linear kernels share.

namespace sparsekiln {

/// The items of a worker, one after the other.
template <class Config, class Tile>
struct Items {
  const typename Config::Table& table;
  int item;
  const int end;
  int item_end;  ///< the chunk behind its last
  Tile tile;

  __device__ __forceinline__ Items(const typename Config::Table& from, int first, int items_end)
      : table(from), item(first), end(items_end), item_end(from.item_end(first)) {
    tile.clear();
  }
  /// Ends the items that end before a chunk: those that have no chunks, too.
  __device__ __forceinline__ void finish_before(int chunk, const Destination<Config>& to) {
    while (item_end <= chunk && item < end) {
      auto&& sums = tile.gathered();
      finish(table, item, sums, to);
      item_end = table.item_end(++item);
      tile.clear();
    }
  }
  template <class Operands>
  __device__ __forceinline__ void add(Operands& operands, int chunk) {
    // Which tile it is and whether x has a new one: nothing to ask for where an item has one tile.
    Step step{0};
    if constexpr (Config::rows > 1) step.bits = table.step(chunk * Operands::kBlocks).x;
    operands.acquire(step.same_input());
    if constexpr (Config::has_gates) {
      if (operands.skipped())
        operands.skip();
      else
        tile.multiply(operands, step.tile());
    } else {
      tile.multiply(operands, step.tile());
    }
    operands.release();
  }
};

/// A worker's share of one batch tile. kChunks > 0: its chunks, which are then unrolled, each with its own
/// coordinates in the code.
///
/// Operands runs ahead through the worker's chunks, from first() on every kStride-th; for each of them Tile
/// adds the products to one of its output tiles. gathered() has the sums of an item's chunks in the form in
/// which the epilogue shares them out over the threads.
template <class Config, class Operands, class Tile, int kChunks>
__device__ __forceinline__ void compute(const typename Config::Table& table, int worker,
                                        const Source<Config>& from, const Destination<Config>& to) {
  Operands operands(table, worker, from);
  const WorkerBegin begin = table.worker(worker);
  const WorkerBegin end = table.worker(worker + 1);
  Items<Config, Tile> items(table, begin.item, end.item);
  if constexpr (kChunks > 0) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      items.finish_before(begin.chunk + i, to);
      items.add(operands, begin.chunk + i);
    }
    items.finish_before(begin.chunk + kChunks, to);
  } else {
#pragma unroll 1
    for (int chunk = begin.chunk + Operands::first();; chunk += Operands::kStride) {
      items.finish_before(chunk, to);
      if (chunk >= end.chunk) break;
      items.add(operands, chunk);
    }
  }
}

/// `compute` for a CTA's worker: with unrolled tables, the code that was made for it.
template <class Config, class Operands, class Tile, int kWorker = 0>
__device__ __forceinline__ void compute_share(const typename Config::Table& table, int worker,
                                              const Source<Config>& from, const Destination<Config>& to) {
  if constexpr (Config::unrolled_workers == 0) {
    compute<Config, Operands, Tile, 0>(table, worker, from, to);
  } else if constexpr (kWorker < Config::unrolled_workers) {
    if (worker == kWorker)
      compute<Config, Operands, Tile, Config::Table::chunks(kWorker)>(table, kWorker, from, to);
    else
      compute_share<Config, Operands, Tile, kWorker + 1>(table, worker, from, to);
  }
}

/// One CTA: worker blockIdx.x, batch tiles blockIdx.y, + gridDim.y, …
///
/// Config names block_out, tile_n, rows, merge, threads, the Table, the Output, the epilogue, whether rows
/// are split, and whether x and y are feature-major: x[in, n] and y[out, n], strides from one feature to the
/// next.
template <class Config, class Operands, class Tile>
__device__ __forceinline__ void linear(const typename Config::Element* __restrict__ x,
                                       const typename Config::Element* __restrict__ w,
                                       typename Config::Output::Element* __restrict__ y, void* workspace,
                                       int n, long long x_stride, long long y_stride,
                                       const Ends<Config>& ends, typename Config::Table table) {
  const int tiles = (n + Config::tile_n - 1) / Config::tile_n;
  const int worker = static_cast<int>(blockIdx.x);
  for (int batch_tile = static_cast<int>(blockIdx.y); batch_tile < tiles;
       batch_tile += static_cast<int>(gridDim.y)) {
    const long long first_n = static_cast<long long>(batch_tile) * Config::tile_n;
    const int valid = n - static_cast<int>(first_n);
    const auto ahead = [=](long long stride) { return Config::feature_major ? first_n : first_n * stride; };
    const Source<Config> from{x + ahead(x_stride),           w,        ends.v,        ends.gates,
                              ends.z + ahead(ends.z_stride), x_stride, ends.z_stride, valid};
    Destination<Config> to{y + ahead(y_stride), y_stride, valid, workspace, batch_tile, ends};
    to.ends.residual += ahead(ends.residual_stride);
    compute_share<Config, Operands, Tile>(table, worker, from, to);
    __syncthreads();  // the next tile's copies overwrite what slower threads still read
  }
}

}  // namespace sparsekiln
