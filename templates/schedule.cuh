#pragma once

#include "extents.cuh"
#include "ptx_mma.cuh"

// The schedule as a kernel reads it: tables, read through the entry's `Table`, which are either constants of
// the emitted source or an argument of the launch.
//
// A chunk is what one stage of shared memory holds: a segment of a block's columns, a block, or kBlocks
// blocks of one item. The last chunk of an item may have fewer blocks. The table has kBlocks steps for each
// chunk, and for one more chunk after the last: it is read ahead but never computed. An item without blocks
// has no chunks.

namespace sparsekiln {

/// What the table says of one step besides its block; made by compiler/cuda/tables.cpp.
struct Step {
  unsigned bits;

  /// The block column.
  __device__ __forceinline__ int column() const { return static_cast<int>(bits & 0xffffff); }
  /// Which segment of the block's columns, where a chunk holds less than a block.
  __device__ __forceinline__ int segment() const { return static_cast<int>(bits >> 24 & 7); }
  /// Which output tile of the item.
  __device__ __forceinline__ int tile() const { return static_cast<int>(bits >> 27 & 3); }
  /// Whether there is a block; otherwise the operands are filled with zeros.
  __device__ __forceinline__ bool present() const { return (bits >> 29 & 1) == 0; }
  /// Whether the chunk before it, of the same item, has the same tile of x.
  __device__ __forceinline__ bool same_input() const { return (bits >> 30 & 1) != 0; }
  /// Where output tiles have chunks of their own: whether no later chunk of this one has the same line of x.
  __device__ __forceinline__ bool last_of_tile() const { return bits >> 31 != 0; }
  /// Elsewhere: whether no other CTA of a team needs its tile of x, and its own one only if there is a block.
  __device__ __forceinline__ bool alone() const { return bits >> 31 != 0; }

  __device__ static __forceinline__ Step absent() { return {1u << 29}; }
};

/// What the last eight steps say of tiles and of x.
struct RecentSteps {
  unsigned bits = 0;  ///< four of each

  __device__ __forceinline__ void add(const Step& step) { bits = bits << 4 | (step.bits >> 27 & 15); }
  /// The step before which kSince others were added.
  template <int kSince>
  __device__ __forceinline__ Step read() const {
    static_assert(kSince < 8, "more are not kept");
    return {bits >> 4 * kSince << 27};
  }
};

/// Where a `Table` has its steps: folded into code that is unrolled, in constant memory, or in global memory.
enum StepPlace : int { kStepsInCode, kStepsInConstants, kStepsInMemory };

/// Where a worker's chunks and items begin; they end where those of the next worker begin.
struct __align__(8) WorkerBegin {
  int chunk;
  int item;
};

/// The worker whose share this CTA computes of its batch tile number `round`. In every other round CTAs
/// change places, the first one with the last: workers that go through rounds are in the order of what they
/// have, so that a CTA with much of one tile has little of the next. CTAs of a team (cluster_rows) stay
/// together, and all do where a CTA has one tile (has_rounds).
template <class Config>
__device__ __forceinline__ int worker_of_round(unsigned round) {
  const int own = static_cast<int>(blockIdx.x);
  if (!Config::has_rounds || round % 2 == 0) return own;
  const int member = own % Config::cluster_rows;
  return static_cast<int>(gridDim.x) - Config::cluster_rows - (own - member) + member;
}

/// One part of an item that several CTAs share.
struct __align__(16) SplitPart {
  int slot;     ///< where its partial sums are in the workspace
  int first;    ///< the slot of the first part; the others follow in ascending order
  int parts;    ///< number of parts of the item
  int counter;  ///< the counter of parts that have arrived
};

/// A layout's tables in global memory: the last argument of a kernel that was compiled without them.
struct AttachedTables {
  enum : int { steps_in = kStepsInMemory };
  const WorkerBegin* worker_begin;
  const uint2* steps;
  const int* more_blocks;
  const int* item_ends;
  const int* rows;
  const int* splits;
  const SplitPart* parts;
  long long counter_bytes_in_front;
  long long bytes_of_tile;
  int counters_of_tile;
  int features_of_y;  ///< forward
  int columns_of_x;   ///< block columns of the product, of a linear layer
  int blocks_of_weight;

  __device__ __forceinline__ WorkerBegin worker(int index) const { return worker_begin[index]; }
  __device__ __forceinline__ uint2 step(int index) const { return steps[index]; }
  __device__ __forceinline__ int more_block(int index) const { return more_blocks[index]; }
  /// Where the taps of a convolution share block scales, a derived class hides this.
  __device__ __forceinline__ int block_scale(int block) const { return block; }
  __device__ __forceinline__ int item_end(int item) const { return item_ends[item]; }
  __device__ __forceinline__ int row(int index) const { return rows[index]; }
  __device__ __forceinline__ int split(int item) const { return splits[item]; }
  __device__ __forceinline__ SplitPart part(int index) const { return parts[index]; }
  __device__ __forceinline__ int counters() const { return counters_of_tile; }
  __device__ __forceinline__ int features() const { return features_of_y; }
  __device__ __forceinline__ int columns() const { return columns_of_x; }
  __device__ __forceinline__ long long counter_bytes() const { return counter_bytes_in_front; }
  __device__ __forceinline__ long long tile_bytes() const { return bytes_of_tile; }
};

/// One of two types.
template <bool kFirst, class First, class Second>
struct Select {
  using Type = First;
};
template <class First, class Second>
struct Select<false, First, Second> {
  using Type = Second;
};

/// The operands of one batch tile.
template <class Config>
struct Source {
  const typename Config::Element* x;  ///< the first batch row of the tile; of a convolution all of x
  const typename Config::Element* w;
  const typename Config::Element* v;  ///< the second weight; others are as far apart
  const float* block_scales;  ///< if the problem has them; Table::block_scale says which one a block of W has
  const typename Config::Element* z;  ///< like x, where x is multiplied by an activation's derivative at z
  long long x_stride;
  long long z_stride;
  int first;  ///< the number of the tile's first row
  int valid;  ///< rows from there on that exist
  Images<Config> images;
};

/// The weight that a tile of an item is of.
template <class Config>
__device__ __forceinline__ const typename Config::Element* weight_of(int tile,
                                                                     const typename Config::Element* w,
                                                                     const typename Config::Element* v) {
  if constexpr (Config::weights > 1) return w + tile % Config::weights * (v - w);
  return w;
}

/// The block of features that a block column is of: of a convolution it is of a block and a tap.
template <class Config>
__device__ __forceinline__ int block_of_features(int column) {
  if constexpr (Config::convolves) return column / (Config::kernel_d * Config::kernel_h * Config::kernel_w);
  return column;
}

/// Features of x from the first one of a block column on. Only where the last block of features is partial,
/// so that in_features of the config is not 0.
template <class Config>
__device__ __forceinline__ int features_left(int column) {
  return Config::in_features - block_of_features<Config>(column) * Config::block_in;
}

/// The steps of a warp's chunks, every kStride-th one from the first on, held by its lanes. They load the
/// steps of 32 / (kBlocks · kMerge) chunks at once, which are a window, and exchange them by shuffles.
/// Several windows are held: each is loaded while at least kAhead chunks come before it, so that its loads
/// may take as long as the copies of these. Block scales (kBlockScales) are loaded as early, and the steps
/// that name their blocks one window earlier still.
///
/// All lanes of the warp call each function together.
template <class Table, int kBlocks, int kMerge, int kStride, int kAhead, bool kBlockScales>
struct StepWindows {
  enum : int {
    kLanes = kBlocks * kMerge,  ///< of a chunk
    kChunks = 32 / kLanes,      ///< of a window
    kHeld = 1 + (kAhead + kChunks - 1) / kChunks,
    kLoaded = kHeld + (kBlockScales ? 1 : 0),  ///< windows of steps
  };
  static_assert(32 % kLanes == 0, "a chunk's steps are in one window");

  const Table table;
  const float* const block_scales;
  int chunk;  ///< the next one
  const int end;
  const int phase;      ///< of the warp's chunks
  uint2 held[kLoaded];  ///< of each window a step; of a merged one, its other blocks are with other lanes
  float held_block_scales[kBlockScales ? int{kHeld} : 1];

  __device__ __forceinline__ StepWindows(const Table& from, const float* all_block_scales, int first,
                                         int worker_end)
      : table(from), block_scales(all_block_scales), chunk(first), end(worker_end), phase(first % kStride) {
#pragma unroll
    for (int i = 0; i < kLoaded; ++i) held[i] = load(i, first);
    if constexpr (kBlockScales) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) held_block_scales[i] = load_block_scale(held[i]);
    }
  }
  __device__ __forceinline__ bool done() const { return chunk >= end; }
  /// A step of the next chunk.
  __device__ __forceinline__ Step step(int own) const {
    return {__shfl_sync(0xffffffff, held[0].x, lane_of(own))};
  }
  /// Its block at a place, where several are merged.
  __device__ __forceinline__ int block(int own, int place) const {
    return static_cast<int>(__shfl_sync(0xffffffff, held[0].y, lane_of(own) + place));
  }
  /// The scale of its block; 0 where there is no block.
  __device__ __forceinline__ float block_scale(int own) const {
    return __shfl_sync(0xffffffff, held_block_scales[0], lane_of(own));
  }
  __device__ __forceinline__ void advance() {
    chunk += kStride;
    if ((position() & kChunks - 1) != 0) return;
#pragma unroll
    for (int i = 1; i < kLoaded; ++i) held[i - 1] = held[i];
    held[kLoaded - 1] = load(kLoaded - 1, 0);
    if constexpr (kBlockScales) {
#pragma unroll
      for (int i = 1; i < kHeld; ++i) held_block_scales[i - 1] = held_block_scales[i];
      held_block_scales[kHeld - 1] = load_block_scale(held[kHeld - 1]);
    }
  }

 private:
  /// The next chunk's, among all of this phase. Windows begin at multiples of their chunks.
  __device__ __forceinline__ int position() const { return chunk / kStride; }
  /// Modulo 32, as shuffles take it.
  __device__ __forceinline__ int lane_of(int own) const { return position() * kLanes + own * kMerge; }
  /// What this lane holds of a window, counted from that of the next chunk: nothing before chunk `first`, and
  /// nothing after the last one.
  __device__ __forceinline__ uint2 load(int window, int first) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int begin = (position() & -kChunks) + window * kChunks;
    const int at = (begin + lane / kLanes) * kStride + phase;
    const int index = at * kBlocks + lane % kLanes / kMerge;
    const int place = lane % kMerge;
    uint2 loaded = {Step::absent().bits, 0};
    if ((window == 0 && at < first) || at >= end) return loaded;
    if (place == 0)
      loaded = table.step(index);
    else if constexpr (kMerge > 1)
      loaded.y = static_cast<unsigned>(table.more_block(index * (kMerge - 1) + place - 1));
    return loaded;
  }
  __device__ __forceinline__ float load_block_scale(uint2 entry) const {
    return Step{entry.x}.present() ? block_scales[table.block_scale(static_cast<int>(entry.y))] : 0.0f;
  }
};

/// The steps of a worker's chunks where they are constants of the code, or in constant memory: each is read
/// when it is asked for.
template <class Table, int kBlocks, int kMerge, bool kBlockScales>
struct ConstantSteps {
  const Table table;
  const float* const block_scales;
  int chunk;
  const int end;

  __device__ __forceinline__ ConstantSteps(const Table& from, const float* all_block_scales, int first,
                                           int worker_end)
      : table(from), block_scales(all_block_scales), chunk(first), end(worker_end) {}
  __device__ __forceinline__ bool done() const { return chunk >= end; }
  __device__ __forceinline__ Step step(int own) const { return {table.step(chunk * kBlocks + own).x}; }
  __device__ __forceinline__ int block(int own, int place) const {
    const int index = chunk * kBlocks + own;
    if constexpr (kMerge > 1)
      if (place != 0) return table.more_block(index * (kMerge - 1) + place - 1);
    return static_cast<int>(table.step(index).y);
  }
  __device__ __forceinline__ float block_scale(int own) const {
    return step(own).present() ? block_scales[table.block_scale(block(own, 0))] : 0.0f;
  }
  __device__ __forceinline__ void advance() {
    chunk = min(chunk + 1, end);  // stays at the end, where one more chunk can be read
  }
};

/// One or the other, for all chunks of a worker. Block scales are in global memory wherever steps are.
template <class Table, int kBlocks, int kMerge, int kAhead, bool kBlockScales>
using WorkerSteps = typename Select<Table::steps_in == kStepsInMemory ||
                                        (kBlockScales && Table::steps_in == kStepsInConstants),
                                    StepWindows<Table, kBlocks, kMerge, 1, kAhead, kBlockScales>,
                                    ConstantSteps<Table, kBlocks, kMerge, kBlockScales>>::Type;

/// Reads the schedule of one worker ahead of the arithmetic, by at least kAhead chunks where that takes loads
/// from global memory. What a thread needs to know of the next chunk is in its registers before the chunk is
/// copied.
template <class Table, int kBlocks, int kMerge, int kWanted, int kAhead, bool kBlockScales = false>
struct Feed {
  static_assert(!kBlockScales || kMerge == 1, "the block scale is that of the step's only block");
  using Steps = WorkerSteps<Table, kBlocks, kMerge, kAhead, kBlockScales>;
  Steps steps;
  const int own;       ///< which of the chunk's blocks this thread copies
  int place[kWanted];  ///< in the step, of the blocks whose rows this thread copies
  Step step{0};
  int block[kWanted];     ///< these blocks; -1 where a merged step lacks the block
  float block_scale = 1;  ///< of the block; 0 where there is no block

  /// Where kMerge > 1, `wanted(i)` is the position in the step of the block that the thread's i-th rows
  /// belong to.
  template <class Wanted>
  __device__ __forceinline__ Feed(const Table& table, int worker, int own_block, Wanted wanted,
                                  const float* block_scales = nullptr)
      : steps(table, block_scales, table.worker(worker).chunk, table.worker(worker + 1).chunk),
        own(own_block) {
#pragma unroll
    for (int i = 0; i < kWanted; ++i) place[i] = kMerge == 1 ? 0 : ptx::kept(wanted(i));
    look();
  }
  __device__ __forceinline__ bool done() const { return steps.done(); }
  __device__ __forceinline__ void advance() {
    steps.advance();
    look();
  }

 private:
  __device__ __forceinline__ void look() {
    step = steps.step(own);
    if constexpr (kBlockScales) block_scale = steps.block_scale(own);
#pragma unroll
    for (int i = 0; i < kWanted; ++i) block[i] = steps.block(own, place[i]);
  }
};

}  // namespace sparsekiln
