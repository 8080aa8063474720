#pragma once

#include "epilogue.cuh"
#include "lattice.cuh"
#include "panels.cuh"
#include "requirements.cuh"
#include "schedule.cuh"

// The traversal of the schedule that all SpMM kernels share.

namespace sparsekiln {

/// The items of a worker, one after the other.
template <class Config, AccumulatingTile Tile>
struct Items {
  using Place = typename Tile::Place;
  const typename Config::Table& table;
  int item;
  const int end;
  int item_end;  ///< the first chunk after the item
  Tile tile;

  __device__ __forceinline__ Items(const typename Config::Table& from, int first, int items_end)
      : table(from), item(first), end(items_end), item_end(from.item_end(first)) {
    tile.clear();
  }
  /// Finishes the items that end before a chunk, also those that have no chunks.
  __device__ __forceinline__ void finish_before(int chunk, const Destination<Config>& to) {
    while (item_end <= chunk && item < end) {
      const int next_end = table.item_end(item + 1);  // while this one is written
      const Place where(table, item);
      auto&& accumulators = tile.gathered();
      finish(table, item, where, accumulators, to);
      item_end = next_end;
      ++item;
      tile.clear();
    }
  }
  template <ChunkOfOperands Operands>
  __device__ __forceinline__ void add(Operands& operands) {
    // An item with one tile needs neither its number nor whether x has a new tile.
    Step step{0};
    if constexpr (Config::rows > Operands::kStepWeights) step = operands.next();
    operands.acquire(step.same_input());
    if constexpr (Config::has_block_scales) {
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

/// How many chunks operands have under way in registers, each a type of its own that a loop over chunks takes
/// in turns; 0: they have one type.
template <class Operands>
struct ChunksHeld {
  enum : int { kHeld = 0 };
};

/// `compute` of operands that have one or two chunks in registers, which are multiplied in turns. Where a
/// chunk was, the one that comes kHeld later is loaded: in the loops, one that lacks nothing. So a round ends
/// with an item, before a chunk is loaded that lacks blocks or features, or when all steps that are held have
/// passed.
template <class Config, class Operands, class Tile>
__device__ __forceinline__ void compute_held(Operands& operands, Items<Config, Tile>& items, int chunk,
                                             int end, const Destination<Config>& to) {
  enum : int { kStride = Operands::kStride, kOdd = ChunksHeld<Operands>::kHeld - 1 };
  auto even = operands.template chunk<0, false>();
  auto odd = operands.template chunk<kOdd, false>();
  bool odd_is_next = false;
#pragma unroll 1
  for (;;) {
    items.finish_before(chunk, to);
    if (chunk >= end) break;
    const int of_item = (min(items.item_end, end) - chunk + kStride - 1) / kStride;
    int count = min(of_item, operands.whole());
    if constexpr (Operands::kMayLack) {
      if (count == 0) {
        auto even_before_lacking = operands.template chunk<0, true>();
        auto odd_before_lacking = operands.template chunk<kOdd, true>();
        if (kOdd > 0 && odd_is_next)
          items.add(odd_before_lacking);
        else
          items.add(even_before_lacking);
        odd_is_next = kOdd > 0 && !odd_is_next;
        chunk += kStride;
        operands.refill();
        continue;
      }
    }
    chunk += count * kStride;
    if (kOdd > 0 && odd_is_next) {
      items.add(odd);
      odd_is_next = false;
      --count;
    }
    if constexpr (kOdd > 0) {
#pragma unroll 1
      for (; count > 1; count -= 2) {
        items.add(even);
        items.add(odd);
      }
    }
#pragma unroll 1
    for (; count > 0; --count) {
      items.add(even);
      odd_is_next = kOdd > 0;
    }
    operands.refill();
  }
}

/// The work of one worker on one batch tile. If kChunks > 0, it is the number of chunks, and their loop is
/// unrolled: each chunk has its own coordinates in the code.
///
/// Operands load the worker's chunks ahead; for each of them, Tile adds the products.
template <class Config, ChunkLoader Operands, AccumulatingTile Tile, int kChunks>
__device__ __forceinline__ void compute(const typename Config::Table& table, int worker,
                                        const Source<Config>& from, const Destination<Config>& to) {
  Operands operands(table, worker, from);
  const WorkerBegin begin = table.worker(worker);
  const WorkerBegin end = table.worker(worker + 1);
  Items<Config, Tile> items(table, begin.item, end.item);
  if constexpr (ChunksHeld<Operands>::kHeld > 0) {
    compute_held<Config, Operands, Tile>(operands, items, begin.chunk + Operands::first(), end.chunk, to);
  } else if constexpr (kChunks > 0) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      items.finish_before(begin.chunk + i, to);
      items.add(operands);
    }
    items.finish_before(begin.chunk + kChunks, to);
  } else {
#pragma unroll 1
    for (int chunk = begin.chunk + Operands::first();; chunk += Operands::kStride) {
      items.finish_before(chunk, to);
      if (chunk >= end.chunk) break;
      items.add(operands);
    }
  }
}

/// Calls `compute` for a CTA's worker. If the tables are unrolled, each worker has its own code.
template <class Config, ChunkLoader Operands, AccumulatingTile Tile, int kWorker = 0>
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

/// What `wait_with_weight_ahead` asks of operands, where a warpgroup's chunk is of one step.
struct BlockChunks {
  enum : int { kBlocks = 1, kStride = 1, kStepWeights = 1 };
};

/// Where the launch may begin before the one before it has ended: fetches the blocks of this CTA's first
/// chunks into L2, and then waits. Until then only tables, the weight, the bias and block scales may be read,
/// and nothing may be written. Every thread calls this first: a CTA that ended without waiting could let the
/// next launch begin before the one before this one has ended.
template <class Config, class Operands>
__device__ __forceinline__ void wait_with_weight_ahead(const typename Config::Table& table,
                                                       const typename Config::Element* w,
                                                       const typename Config::Element* v) {
  enum : int {
    kBlockBytes = Config::block_out * Config::block_in * static_cast<int>(sizeof(typename Config::Element)),
    kLines = (kBlockBytes + 127) / 128,
    kChunks = Config::stages * Operands::kStride,
    /// that each step is of, besides those that have steps of their own
    kWeights = Operands::kStepWeights,
  };
  const int worker = worker_of_round<Config>(0);
  const int chunk = table.worker(worker).chunk;
  const int chunks = min(table.worker(worker + 1).chunk - chunk, int{kChunks});
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < chunks * Operands::kBlocks * kWeights * kLines;
       i += Config::threads) {
    const uint2 entry = table.step(chunk * Operands::kBlocks + i / (kWeights * kLines));
    const Step step{entry.x};
    const int block = static_cast<int>(entry.y);
    if (!step.present() || step.segment() != 0 || block < 0) continue;
    const auto* const weight = weight_of<Config>(step.tile() + i / kLines % kWeights, w, v);
    ptx::prefetch_line(reinterpret_cast<const char*>(weight) + static_cast<long long>(block) * kBlockBytes +
                       i % kLines * 128);
  }
  ptx::wait_for_earlier_launches();
  ptx::let_next_launch_begin();
}

/// How many elements, or rows, of an operand precede those of a batch tile.
template <class Config>
__device__ __forceinline__ long long ahead_of(int batch_tile, long long stride) {
  const long long first = static_cast<long long>(batch_tile) * Config::tile_n;
  return Config::feature_major ? first : first * stride;
}

/// Where the outputs of a batch tile of `rows` rows in all are written.
template <class Config>
__device__ __forceinline__ Destination<Config> destination_of(typename Config::Output::Element* y,
                                                              long long y_stride, void* workspace, int rows,
                                                              int batch_tile, const Images<Config>& images,
                                                              const EpilogueArguments<Config>& epilogue) {
  const auto ahead = [=](long long stride) {
    return scatters<Config>() ? 0 : ahead_of<Config>(batch_tile, stride);
  };
  const int first = batch_tile * Config::tile_n;
  Destination<Config> to{y + ahead(y_stride), y_stride,   first,  rows - first,
                         workspace,           batch_tile, images, epilogue};
  to.epilogue.residual += ahead(epilogue.residual_stride);
  if constexpr (Config::lstm) move_to_tile<Config>(to.epilogue.cell, static_cast<long long>(first));
  return to;
}

/// The work of one CTA: batch tiles blockIdx.y, blockIdx.y + gridDim.y, …, of each the worker of that round.
///
/// Config names block_out, tile_n, rows, merge, cluster_rows (CTAs that share x), has_rounds (of batch tiles,
/// for a CTA), threads, the Table, the Output, the epilogue, whether rows are split, whether launches
/// overlap, and whether x and y are feature-major: x[in, n] and y[out, n], with strides from one feature to
/// the next.
template <class Config, ChunkLoader Operands, AccumulatingTile Tile>
__device__ __forceinline__ void spmm(const typename Config::Element* x, const typename Config::Element* w,
                                     typename Config::Output::Element* y, void* workspace, int n,
                                     long long x_stride, long long y_stride,
                                     const EpilogueArguments<Config>& epilogue,
                                     typename Config::Table table) {
  using Element = typename Config::Element;
  const Images<Config> images(epilogue.images);
  const int rows = rows_of(n, images);
  const int tiles = (rows + Config::tile_n - 1) / Config::tile_n;
  if constexpr (Config::overlaps) wait_with_weight_ahead<Config, Operands>(table, w, epilogue.v);
  int batch_tile = static_cast<int>(blockIdx.y);
  for (unsigned round = 0; batch_tile < tiles; ++round, batch_tile += static_cast<int>(gridDim.y)) {
    const int first = batch_tile * Config::tile_n;
    const auto of_x = [=](long long stride) {
      return Config::convolves ? 0 : ahead_of<Config>(batch_tile, stride);
    };
    const Element* first_x = x + of_x(x_stride);
    if constexpr (Config::panels)
      first_x = reinterpret_cast<const Element*>(Panels<Config>::of(table, workspace, batch_tile));
    const Source<Config> from{first_x,
                              w,
                              epilogue.v,
                              epilogue.block_scales,
                              epilogue.z + of_x(epilogue.z_stride),
                              x_stride,
                              epilogue.z_stride,
                              first,
                              rows - first,
                              images};
    const Destination<Config> to =
        destination_of<Config>(y, y_stride, workspace, rows, batch_tile, images, epilogue);
    compute_share<Config, Operands, Tile>(table, worker_of_round<Config>(round), from, to);
    __syncthreads();  // the copies of the next tile overwrite what slower threads still read
  }
}

}  // namespace sparsekiln
