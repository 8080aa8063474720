#pragma once

#include "extents.cuh"

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
};

/// What the last eight steps say of tiles and of x.
struct RecentSteps {
  unsigned bits = 0;  ///< four of each

  __device__ __forceinline__ void add(const Step& step) { bits = bits << 4 | step.bits >> 27; }
  /// The step before which kSince others were added.
  template <int kSince>
  __device__ __forceinline__ Step read() const {
    static_assert(kSince < 8, "more are not kept");
    return {bits >> 4 * kSince << 27};
  }
};

/// Where a worker's chunks and items begin; they end where those of the next worker begin.
struct __align__(8) WorkerBegin {
  int chunk;
  int item;
};

/// One part of an item that several CTAs share.
struct __align__(16) SplitPart {
  int slot;     ///< where its partial sums are in the workspace
  int first;    ///< the slot of the first part; the others follow in ascending order
  int parts;    ///< number of parts of the item
  int counter;  ///< the counter of parts that have arrived
};

/// A layout's tables in global memory: the last argument of a kernel that was compiled without them.
struct AttachedTables {
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

  __device__ __forceinline__ WorkerBegin worker(int index) const { return worker_begin[index]; }
  __device__ __forceinline__ uint2 step(int index) const { return steps[index]; }
  __device__ __forceinline__ int more_block(int index) const { return more_blocks[index]; }
  /// Where the taps of a convolution share gates, a derived class hides this.
  __device__ __forceinline__ int gate(int block) const { return block; }
  __device__ __forceinline__ int item_end(int item) const { return item_ends[item]; }
  __device__ __forceinline__ int row(int index) const { return rows[index]; }
  __device__ __forceinline__ int split(int item) const { return splits[item]; }
  __device__ __forceinline__ SplitPart part(int index) const { return parts[index]; }
  __device__ __forceinline__ int counters() const { return counters_of_tile; }
  __device__ __forceinline__ int features() const { return features_of_y; }
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
  const float* gates;  ///< if the problem has gates; Table::gate says which one a block of W has
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

/// Reads the schedule of one worker ahead of the arithmetic. What a thread needs to know of the next chunk is
/// read while the chunk before it is copied and multiplied, so that no copy waits for an index. No copy waits
/// for a gate either (kGates): the step that names its block is read one chunk earlier.
template <class Table, int kBlocks, int kMerge, int kWanted, bool kGates = false>
struct Feed {
  static_assert(!kGates || kMerge == 1, "the gate is that of the step's only block");
  const Table table;
  const float* const gates;
  const int own;  ///< which of the chunk's blocks this thread copies
  int chunk;
  const int end;
  Step step{0};
  int block[kWanted];  ///< the blocks whose rows this thread copies; -1 where a merged step lacks the block
  float gate = 1;      ///< of the block; 0 where there is no block

  /// Where kMerge > 1, `wanted(i)` is the position in the step of the block that the thread's i-th rows
  /// belong to.
  template <class Wanted>
  __device__ __forceinline__ Feed(Table from, int worker, int own_block, Wanted wanted,
                                  const float* all_gates = nullptr)
      : table(from),
        gates(all_gates),
        own(own_block),
        chunk(from.worker(worker).chunk),
        end(from.worker(worker + 1).chunk) {
    if constexpr (kGates) later = table.step(chunk * kBlocks + own);
    look(wanted);
  }
  __device__ __forceinline__ bool done() const { return chunk >= end; }
  template <class Wanted>
  __device__ __forceinline__ void advance(Wanted wanted) {
    chunk = min(chunk + 1, end);  // stays at the end, where one more chunk can be read
    look(wanted);
  }

 private:
  uint2 later;  ///< the step of the chunk after this one, where there are gates

  template <class Wanted>
  __device__ __forceinline__ void look(Wanted wanted) {
    const int index = chunk * kBlocks + own;
    const uint2 entry = kGates ? later : table.step(index);
    step.bits = entry.x;
    if constexpr (kGates) {
      gate = step.present() ? gates[table.gate(static_cast<int>(entry.y))] : 0.0f;
      later = table.step(min(chunk + 1, end) * kBlocks + own);
    }
    if constexpr (kMerge == 1) {
      block[0] = static_cast<int>(entry.y);
    } else {
#pragma unroll
      for (int i = 0; i < kWanted; ++i) {
        const int place = wanted(i);
        block[i] =
            place == 0 ? static_cast<int>(entry.y) : table.more_block(index * (kMerge - 1) + place - 1);
      }
    }
  }
};

}  // namespace sparsekiln
