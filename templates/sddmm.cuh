#pragma once

#include "batch_rows.cuh"
#include "copy_points.cuh"
#include "lattice.cuh"
#include "load_batch_rows.cuh"
#include "load_features.cuh"
#include "output.cuh"
#include "ptx.cuh"
#include "ptx_mma.cuh"

// SDDMM, the gradient of the weight of a block-sparse linear layer: dw = Σ over pairs of dyᵀ · x on present
// blocks.
//
// A worker has runs of blocks (compiler/block_runs.h) and computes one after the other. The accumulators of a
// run are block_out × (width · block_in), for width · block_in columns of x that are gathered next to each
// other. The batch rows of all pairs pass through shared memory in chunks, and every chunk serves all blocks
// of the run. The Tile decides which batch rows of a chunk a thread adds. An element of dw then has
// kBatchSlices partial sums, which are added in ascending order, so dw depends only on the inputs and the
// config.
//
// Where runs are few and batch rows many, several CTAs share a run, a slice of the batch rows each. Their
// sums meet in the workspace, and the last to arrive adds them in ascending order of slices.

namespace sparsekiln {

/// A layout's tables in global memory: the last argument of a kernel that was compiled without them, laid out
/// as AttachedTables (schedule.cuh).
struct AttachedRuns {
  const int* worker_begin;
  const int4* items;   ///< runs, or groups of pieces
  const int* columns;  ///< of each block, or the tiles of all groups
  const int4* pairs;   ///< of pieces
  const void* unused[3];
  long long counter_bytes_in_front;
  long long sums_bytes;  ///< of all slices, and after them of block scales
  int slices_of_run;
  int features_of_y;
  int columns_of_x;
  int blocks_of_weight;

  __device__ __forceinline__ int worker(int index) const { return worker_begin[index]; }
  __device__ __forceinline__ BlockRun run(int index) const {
    const int4 run = items[index];
    return {run.x, run.y, run.z, run.w};
  }
  __device__ __forceinline__ int column(int block) const { return columns[block]; }
  __device__ __forceinline__ int slices() const { return slices_of_run; }
  __device__ __forceinline__ int blocks() const { return blocks_of_weight; }
  __device__ __forceinline__ long long counter_bytes() const { return counter_bytes_in_front; }
};

// What follows from a layout: constants of the code, or numbers of its tables.

/// CTAs that share a run, at most.
template <class Config>
__device__ __forceinline__ int most_slices(const typename Config::Table& table) {
  if constexpr (Config::attached && Config::slices > 1) return table.slices();
  return Config::slices;
}
/// Where sums begin in the workspace, after the counters of runs.
template <class Config>
__device__ __forceinline__ char* after_counters(void* workspace, const typename Config::Table& table) {
  if constexpr (Config::attached)
    return static_cast<char*>(workspace) + table.counter_bytes();
  else
    return static_cast<char*>(workspace) + Config::counter_bytes;
}

/// The epilogue arguments: what is done with the accumulators.
template <class Config>
struct SddmmEpilogue {
  float alpha = 1;
  float beta = 0;
  float* dbias = nullptr;
  const float* block_scales = nullptr;
  float* dblock_scales = nullptr;
  const typename Config::Element* w = nullptr;
  void* workspace = nullptr;  ///< where slices meet, and taps with one block scale
  ImageExtents images{};
};

/// alpha · sum + beta · old. `old` is read only if beta is not 0.
template <class Config>
__device__ __forceinline__ float scaled_sum(const SddmmEpilogue<Config>& epilogue, float sum,
                                            const float* old) {
  if constexpr (!Config::scales) return sum;
  const float value = epilogue.alpha * sum;
  return epilogue.beta == 0 ? value : __fmaf_rn(epilogue.beta, *old, value);
}

/// Adds beta · old to values of dw. `old` is read only if beta is not 0.
template <class Config, int kRun>
__device__ __forceinline__ void add_old(const typename Config::Output::Element* old, float (&values)[kRun],
                                        const SddmmEpilogue<Config>& epilogue) {
  if (!Config::scales || epilogue.beta == 0) return;
  float read[kRun];
  Config::Output::read(old, read);
#pragma unroll
  for (int v = 0; v < kRun; ++v) values[v] = __fmaf_rn(epilogue.beta, read[v], values[v]);
}

/// The accumulators of a run in shared memory, [block_out][width · block_in].
template <class Config>
struct SharedAccumulators {
  enum : int {
    kColumns = Config::width * Config::block_in,
    kRun = 16 / static_cast<int>(sizeof(typename Config::Output::Element)),
    kQuads = kRun / 4,
    kOfBlock = Config::block_out * Config::block_in,
  };
  using Rows = BatchRows<kColumns / 4, 4>;

  __device__ static __forceinline__ unsigned place(int row, int column) {
    return ptx::dynamic_shared() +
           Rows::offset(static_cast<unsigned>(row), static_cast<unsigned>(column) / 4) +
           static_cast<unsigned>(column) % 4 * 4;
  }
  /// Reads elements from `element` on of block `block` of the run. Where a thread reads two quads, half of
  /// the lanes start with the second one, so that 8 lanes always read 8 quads in different banks.
  __device__ static __forceinline__ void read(int block, int element, float (&run)[kRun]) {
    const int row = element / Config::block_in;
    const int column = block * Config::block_in + element % Config::block_in;
    float quad[kQuads][4];
    const int turn = kQuads == 1 ? 0 : static_cast<int>(threadIdx.x) / 4 % 2;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) ptx::load_shared<0>(quad[q], place(row, column + (q ^ turn) * 4));
#pragma unroll
    for (int v = 0; v < kRun; ++v)
      run[v] = kQuads == 1 ? quad[0][v] : (v / 4 == turn ? quad[0][v % 4] : quad[kQuads - 1][v % 4]);
  }
};

/// Writes alpha · values + beta · dw, of neighbouring elements.
template <class Config, int kRun>
__device__ __forceinline__ void write_scaled(typename Config::Output::Element* dw, float (&values)[kRun],
                                             const SddmmEpilogue<Config>& epilogue) {
  if constexpr (Config::scales) {
#pragma unroll
    for (int v = 0; v < kRun; ++v) values[v] *= epilogue.alpha;
  }
  add_old(dw, values, epilogue);
  Config::Output::write(dw, values);
}

/// Writes the gradient of the bias of an output.
template <class Config>
__device__ __forceinline__ void write_bias(int output, float sum, const SddmmEpilogue<Config>& epilogue) {
  float* const place = epilogue.dbias + output;
  *place = scaled_sum(epilogue, sum, place);
}

/// Where the launch may begin before the one before it has ended: waits for that.
template <class Config>
__device__ __forceinline__ void wait_for_earlier_launches() {
  if constexpr (!Config::overlaps) return;
  ptx::wait_for_earlier_launches();
  ptx::let_next_launch_begin();
}

/// How much of a block exists, where the last block row or block column is partial.
template <class Config>
struct BlockExtent {
  enum : bool { kPartialBlocks = Config::in_features != 0 || Config::out_features != 0 };
  int outs = Config::block_out;
  int ins = Config::block_in;

  __device__ __forceinline__ BlockExtent(int row, int column) {
    if constexpr (Config::out_features != 0) outs = Config::out_features - row * Config::block_out;
    if constexpr (Config::in_features != 0) ins = features_left<Config>(column);
  }
  /// Whether element `element` of the block exists.
  __device__ __forceinline__ bool has(int element) const {
    return element / Config::block_in < outs && element % Config::block_in < ins;
  }
};

/// Writes dw of a run. The run's blocks are consecutive in memory, and the threads write them in order, 16
/// bytes each. Elements beyond a partial edge are written as zeros.
template <class Config>
__device__ __forceinline__ void store_run(const BlockRun& run, typename Config::Output::Element* dw,
                                          const SddmmEpilogue<Config>& epilogue,
                                          const typename Config::Table& table) {
  using Shared = SharedAccumulators<Config>;
  enum : int { kRun = Shared::kRun, kOfBlock = Shared::kOfBlock / kRun };
  auto* const to = dw + static_cast<long long>(run.first) * Shared::kOfBlock;
  const int end = run.blocks * kOfBlock;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < end; i += Config::threads) {
    const int block = i / kOfBlock;
    float values[kRun];
    Shared::read(block, i % kOfBlock * kRun, values);
    float scale = epilogue.alpha;
    if constexpr (Config::has_block_scales)
      scale *= epilogue.block_scales[table.block_scale(run.first + block)];
    if constexpr (Config::scales || Config::has_block_scales) {
#pragma unroll
      for (int v = 0; v < kRun; ++v)
        values[v] = Config::has_block_scales && scale == 0 ? 0.0f : values[v] * scale;
    }
    auto* const place = to + static_cast<long long>(i) * kRun;
    add_old(place, values, epilogue);
    if constexpr (BlockExtent<Config>::kPartialBlocks) {
      const BlockExtent<Config> extent(run.row, table.column(run.first + block));
#pragma unroll
      for (int v = 0; v < kRun; ++v) values[v] = extent.has(i % kOfBlock * kRun + v) ? values[v] : 0.0f;
    }
    Config::Output::write(place, values);
  }
}

/// What `sddmm` has in the workspace for each block of dw, after all else.
template <class Config>
__device__ __forceinline__ float* sums_of_taps(const SddmmEpilogue<Config>& epilogue,
                                               const typename Config::Table& table) {
  auto* const workspace = static_cast<char*>(epilogue.workspace);
  if constexpr (Config::attached)
    return reinterpret_cast<float*>(workspace + table.counter_bytes() + table.sums_bytes) - table.blocks();
  else
    return reinterpret_cast<float*>(workspace + Config::bytes_before_block_scales);
}

/// Computes Σ dw · W over each block of a run, one warp per block. Lane l adds elements 32 · i + l in
/// ascending order of i; the sums of the lanes are added in pairs, first those 16 lanes apart, at last
/// neighbors.
template <class Config>
__device__ __forceinline__ void store_block_scale_gradients(const BlockRun& run,
                                                            const SddmmEpilogue<Config>& epilogue,
                                                            const typename Config::Table& table) {
  using Shared = SharedAccumulators<Config>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int block = static_cast<int>(threadIdx.x) / 32; block < run.blocks; block += Config::threads / 32) {
    const auto* const w = epilogue.w + static_cast<long long>(run.first + block) * Shared::kOfBlock;
    const BlockExtent<Config> extent(
        run.row, BlockExtent<Config>::kPartialBlocks ? table.column(run.first + block) : 0);
    float sum = 0;
#pragma unroll 4
    for (int i = lane; i < Shared::kOfBlock; i += 32) {
      float value[1];
      ptx::load_shared(value,
                       Shared::place(i / Config::block_in, block * Config::block_in + i % Config::block_in));
      if (!BlockExtent<Config>::kPartialBlocks || extent.has(i))
        sum = __fmaf_rn(value[0], Config::Operand::read(w + i), sum);
    }
    sum += ptx::exchanged<16>(sum);
    sum += ptx::exchanged<8>(sum);
    sum += ptx::exchanged<4>(sum);
    sum += ptx::exchanged<2>(sum);
    sum += ptx::exchanged<1>(sum);
    if (lane != 0) continue;
    if constexpr (Config::sums_block_scales_of_taps) {
      sums_of_taps(epilogue, table)[run.first + block] = sum;
    } else {
      float* const place = epilogue.dblock_scales + run.first + block;
      *place = scaled_sum(epilogue, sum, place);
    }
  }
}

/// The Table says which scale a block has, where there are block scales.
template <class Config>
__device__ __forceinline__ int number_of_block_scales(const typename Config::Table& table) {
  if constexpr (Config::attached)
    return table.block_scale(table.blocks());
  else
    return Config::block_scales;
}

/// A kernel after `sddmm`, with the same grid, where the taps of a convolution share block scales, and
/// different CTAs may have summed them: adds the sums of a block scale's blocks in ascending order.
template <class Config>
__device__ __forceinline__ void sum_block_scales_of_taps(const void*, int,
                                                         const SddmmEpilogue<Config>& epilogue,
                                                         typename Config::Table table) {
  wait_for_earlier_launches<Config>();
  const int threads = static_cast<int>(gridDim.x) * Config::threads;
  const int block_scales = number_of_block_scales<Config>(table);
#pragma unroll 1
  for (int block_scale = static_cast<int>(blockIdx.x) * Config::threads + static_cast<int>(threadIdx.x);
       block_scale < block_scales; block_scale += threads) {
    float sum = 0;
    const int end = table.first_block(block_scale + 1);
    for (int block = table.first_block(block_scale); block < end; ++block)
      sum += sums_of_taps(epilogue, table)[block];
    float* const place = epilogue.dblock_scales + block_scale;
    *place = scaled_sum(epilogue, sum, place);
  }
}

/// Sums dy over the batch rows of a block row. A thread adds 4 bytes of every kGroups-th batch row;
/// feature-major, all batch rows of every kGroups-th unit of kOuts features.
template <class Config, class Stages>
struct BiasSums {
  enum : int {
    kPerWord = 4 / static_cast<int>(sizeof(typename Config::Element)),
    kOuts = !Config::feature_major                 ? int{kPerWord}
            : Stages::kThreads < Config::block_out ? Config::block_out / Stages::kThreads
                                                   : 1,
    kThreads = Config::block_out / kOuts,
    kGroups = Stages::kThreads / kThreads,
    kUnits = Config::chunk / (4 * kPerWord),  ///< units of a feature
  };
  const int word = static_cast<int>(threadIdx.x) % kThreads;
  const int group = static_cast<int>(threadIdx.x) / kThreads;
  float accumulators[kOuts];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < kOuts; ++v) accumulators[v] = 0;
  }
  __device__ __forceinline__ void add(unsigned dy) {
    if constexpr (Config::feature_major)
      add_features(dy);
    else
      add_batch_rows(dy);
  }
  /// Adds the sums of the groups in ascending order, through Stages::free_memory(), and calls use(out, sum)
  /// for the outputs of the block row, each in one thread.
  template <class Use>
  __device__ __forceinline__ void sum(Use use) const {
    const unsigned shared = Stages::free_memory();
#pragma unroll
    for (int v = 0; v < kOuts; ++v) {
      const int out = Config::feature_major ? word + v * kThreads : word * kOuts + v;
      ptx::store_shared<0>(shared + static_cast<unsigned>(group * Config::block_out + out) * 4,
                           accumulators[v]);
    }
    Stages::sync();
    for (int out = static_cast<int>(threadIdx.x); out < Config::block_out; out += Stages::kThreads) {
      float sum = 0;
      for (int g = 0; g < kGroups; ++g) {
        float group_sum[1];
        ptx::load_shared(group_sum, shared + static_cast<unsigned>(g * Config::block_out + out) * 4);
        sum += group_sum[0];
      }
      use(out, sum);
    }
    Stages::sync();
  }

 private:
  __device__ __forceinline__ void add_batch_rows(unsigned dy) {
#pragma unroll 4
    for (int batch_row = group; batch_row < Config::chunk; batch_row += kGroups) {
      unsigned bits;
      ptx::load_word<0>(
          bits,
          dy + Stages::RowsDy::offset(static_cast<unsigned>(batch_row), static_cast<unsigned>(word) / 4) +
              static_cast<unsigned>(word) % 4 * 4);
#pragma unroll
      for (int v = 0; v < kPerWord; ++v) accumulators[v] += Config::Operand::of_word(bits, v);
    }
  }
  __device__ __forceinline__ void add_features(unsigned dy) {
#pragma unroll 1
    for (int unit = group; unit < kUnits; unit += kGroups) {
#pragma unroll
      for (int out = 0; out < kOuts; ++out) {
        unsigned words[4];
        ptx::load_shared<0>(words, dy + Stages::RowsDy::offset(static_cast<unsigned>(word + out * kThreads),
                                                               static_cast<unsigned>(unit)));
#pragma unroll
        for (int v = 0; v < 4 * kPerWord; ++v)
          accumulators[out] += Config::Operand::of_word(words[v / kPerWord], v % kPerWord);
      }
    }
  }
};

/// Writes the gradient of an output's bias.
template <class Config>
__device__ __forceinline__ void store_bias(const BlockRun& run, const SddmmEpilogue<Config>& epilogue,
                                           int out, float sum) {
  if (Config::out_features != 0 && run.row * Config::block_out + out >= Config::out_features) return;
  float* const place = epilogue.dbias + static_cast<long long>(run.row) * Config::block_out + out;
  *place = scaled_sum(epilogue, sum, place);
}

/// What the slices of a run write to the workspace: counters of all runs, then for each run and slice its
/// accumulators and its sums of dy.
template <class Config>
struct SlicedRun {
  using Shared = SharedAccumulators<Config>;
  enum : int {
    kColumns = Shared::kColumns,
    kSums = Config::block_out * kColumns,
    kPart = kSums + Config::block_out,
  };
  unsigned* const counter;
  float* const parts;  ///< of all slices
  float* const own;

  __device__ __forceinline__ SlicedRun(void* workspace, const typename Config::Table& table, int item,
                                       int slice)
      : counter(static_cast<unsigned*>(workspace) + item),
        parts(reinterpret_cast<float*>(after_counters<Config>(workspace, table)) +
              static_cast<long long>(item) * most_slices<Config>(table) * kPart),
        own(parts + static_cast<long long>(slice) * kPart) {}

  /// Writes this slice's accumulators, which are in shared memory, after its sums of dy. Returns true in the
  /// CTA that arrives last: shared memory then holds slice 0 + slice 1 + …, and the counter is zero again.
  __device__ __forceinline__ bool combine(int slices) const {
    const int thread = static_cast<int>(threadIdx.x);
    for (int v = thread * 4; v < kSums; v += Config::threads * 4) {
      float quad[4];
      ptx::load_shared<0>(quad, Shared::place(v / kColumns, v % kColumns));
      ptx::store_global(own + v, quad);
    }
    __syncthreads();  // orders all sums before the atomic, as combine() of epilogue.cuh says
    bool last = false;
    if (thread == 0) last = ptx::add_acquire_release(counter, 1) + 1 == static_cast<unsigned>(slices);
    if (__syncthreads_or(last) == 0) return false;
    if (thread == 0) *counter = 0;
    for (int v = thread * 4; v < kSums; v += Config::threads * 4) {
      float sums[4];
      ptx::load_relaxed(parts + v, sums);
#pragma unroll 1
      for (int slice = 1; slice < slices; ++slice) {
        float quad[4];
        ptx::load_relaxed(parts + static_cast<long long>(slice) * kPart + v, quad);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i] += quad[i];
      }
      ptx::store_shared(Shared::place(v / kColumns, v % kColumns), sums);
    }
    return true;
  }
  /// The sum of dy for an output, after combine() was true.
  __device__ __forceinline__ float bias(int out, int slices) const {
    float sum = 0;
#pragma unroll 1
    for (int slice = 0; slice < slices; ++slice) {
      float part[1];
      ptx::load_relaxed(parts + static_cast<long long>(slice) * kPart + kSums + out, part);
      sum += part[0];
    }
    return sum;
  }
};

/// The blocks of a run whose accumulators are needed, one bit each: all blocks, or those whose scale is not
/// 0.
template <class Config>
__device__ __forceinline__ unsigned wanted_blocks(const BlockRun& run, const SddmmEpilogue<Config>& epilogue,
                                                  const typename Config::Table& table) {
  unsigned wanted = (1u << run.blocks) - 1;
  if constexpr (Config::has_block_scales && !Config::has_block_scale_gradient) {
    for (int block = 0; block < run.blocks; ++block)
      if (epilogue.block_scales[table.block_scale(run.first + block)] == 0) wanted &= ~(1u << block);
  }
  return wanted;
}

/// As many slices as have Config::chunks_of_slice chunks each: fewer chunks are not worth a combine.
template <class Config>
__device__ __forceinline__ int slices_of_chunks(int chunks, int most) {
  return max(min(chunks / int{Config::chunks_of_slice}, most), 1);
}
template <class Config>
__device__ __forceinline__ int slices_of(int rows, int most) {
  return slices_of_chunks<Config>(rows / Config::chunk, most);
}
/// Where a slice of so many chunks begins: they are shared out evenly.
__device__ __forceinline__ int first_chunk(int chunks, int slice, int slices) {
  return static_cast<int>(static_cast<long long>(chunks) * slice / slices);
}

/// The batch rows of a slice: whole chunks, shared out evenly.
template <class Config>
__device__ __forceinline__ BatchSlice slice_of(int rows, int slice, int slices) {
  if constexpr (Config::slices == 1) return {0, rows};
  const int chunks = (rows + Config::chunk - 1) / Config::chunk;
  const int first = first_chunk(chunks, slice, slices) * Config::chunk;
  const int end = first_chunk(chunks, slice + 1, slices) * Config::chunk;
  return {min(first, rows), min(end, rows) - min(first, rows)};
}

/// The work of one CTA: slice blockIdx.x % slices of worker blockIdx.x / slices.
///
/// Config names block_out, block_in, width, chunk (batch rows in a stage), stages, threads, async_copy,
/// copies_pairs (to shared memory, where there is room), feature_major, alignment, in_features and
/// out_features (0: all blocks are whole), slices (CTAs that share
/// a run at most), chunks_of_slice (that each has at least) and counter_bytes (in front of the workspace),
/// exchanged (taps displace dy), sums_block_scales_of_taps (the sums for the gradients of block scales are in
/// the workspace, after bytes_before_block_scales; a kernel after adds those of each of so many
/// block_scales), overlaps (the launch may begin before the one before it has ended), attached (what follows
/// from a layout is in the Table, and slices are at most as many), the Table, the Operand, the Output, and
/// which epilogue arguments there are.
template <class Config, class Tile>
__device__ __forceinline__ void sddmm(const ActivationPairs& pairs, typename Config::Output::Element* dw,
                                      int n, long long x_stride, long long dy_stride, long long z_stride,
                                      const SddmmEpilogue<Config>& epilogue, typename Config::Table table) {
  using Stages = SddmmStages<Config, Tile>;
  const int count = ptx::kept(pairs.count);
  const SelectedPairs<Config::copies_pairs> selected(pairs);
  const int most = most_slices<Config>(table);
  const int worker = static_cast<int>(blockIdx.x) / most;
  const int slice_of_batch = static_cast<int>(blockIdx.x) % most;
  const Images<Config> images(epilogue.images);
  const int rows = rows_of(n, images);
  const int slices = slices_of<Config>(rows, most);
  const BatchSlice slice_rows = slice_of<Config>(rows, slice_of_batch, slices);
  int item = table.worker(worker);
  const int end = table.worker(worker + 1);
  if constexpr (Config::overlaps) {
    // The launch may have begun before the one before it has ended: until then, only the tables are read.
    if (item < end) static_cast<void>(ptx::kept(table.run(item).first));  // brings it into a cache
    ptx::wait_for_earlier_launches();
    ptx::let_next_launch_begin();
  }
  if (slice_of_batch >= slices) return;
  __syncthreads();
#pragma unroll 1
  for (; item < end; ++item) {
    const BlockRun run = table.run(item);
    const unsigned wanted = wanted_blocks(run, epilogue, table);
    const bool sums_dy = Config::has_bias_gradient && run.first_of_row != 0;
    const SlicedRun<Config> sliced(epilogue.workspace, table, item, slice_of_batch);
    Tile tile;
    tile.clear();
    BiasSums<Config, Stages> bias;
    if constexpr (Config::has_bias_gradient) bias.clear();
    if (wanted != 0 || sums_dy) {
      Stages stages(selected, count, slice_rows, x_stride, dy_stride, z_stride, table, run, wanted, images);
#pragma unroll 1
      for (int chunk = stages.chunks(); chunk > 0; --chunk) {
        stages.acquire();
        tile.multiply(stages.dy(), stages.x(), wanted);
        if (Config::has_bias_gradient && sums_dy) bias.add(stages.dy());
        stages.release();
      }
      stages.drain();
    }
    if (Config::has_bias_gradient && sums_dy)
      bias.sum([&](int out, float sum) {
        if (slices > 1)
          sliced.own[SlicedRun<Config>::kSums + out] = sum;
        else
          store_bias(run, epilogue, out, sum);
      });
#pragma unroll 1
    for (int slice = 0; slice < Tile::kBatchSlices; ++slice) {
      tile.put(slice);
      __syncthreads();
    }
    if (Config::slices > 1 && slices > 1) {
      const bool last = sliced.combine(slices);
      __syncthreads();
      if (!last) continue;
      if (Config::has_bias_gradient && sums_dy)
        for (int out = static_cast<int>(threadIdx.x); out < Config::block_out; out += Config::threads)
          store_bias(run, epilogue, out, sliced.bias(out, slices));
    }
    store_run(run, dw, epilogue, table);
    if constexpr (Config::has_block_scale_gradient) store_block_scale_gradients(run, epilogue, table);
    __syncthreads();  // the copies of the next run overwrite what slower threads still read
  }
}

}  // namespace sparsekiln
