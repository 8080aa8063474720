#pragma once

// The schedule as a kernel sees it: tables, read through the entry's `Table`, which are part of the emitted
// source, or of the launch's arguments.
//
// A chunk is what one stage of shared memory holds: a part of a block's columns, a block, or kBlocks blocks
// of one item, of which the last chunk of an item may lack some. The table has kBlocks steps for each chunk,
// and for one more behind the last, which nobody computes: to be read ahead. An item with nothing to add has
// no chunks.

namespace sparsekiln {

/// What the table says of one step besides its block; made by compiler/cuda/tables.cpp.
struct Step {
  unsigned bits;

  __device__ __forceinline__ int column() const { return static_cast<int>(bits & 0xffffff); }  ///< of blocks
  __device__ __forceinline__ int part() const { return static_cast<int>(bits >> 24 & 7); }  ///< of the block
  __device__ __forceinline__ int tile() const { return static_cast<int>(bits >> 27 & 3); }  ///< of the item
  __device__ __forceinline__ bool present() const { return (bits >> 29 & 1) == 0; }         ///< else zeros
  /// The chunk before, of the same item, has the same tile of x.
  __device__ __forceinline__ bool same_input() const { return (bits >> 30 & 1) != 0; }
};

/// Where a worker's chunks and items begin; the next worker's are the end of this one's.
struct __align__(8) WorkerBegin {
  int chunk;
  int item;
};

/// One part of an item that several CTAs share.
struct __align__(16) SplitPart {
  int slot;     ///< its partial sums
  int first;    ///< the slot of the first part; the others follow in ascending order
  int parts;    ///< of all
  int counter;  ///< of their arrivals
};

/// A layout's tables in global memory, the last argument of a kernel that was compiled without them.
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

  __device__ __forceinline__ WorkerBegin worker(int index) const { return worker_begin[index]; }
  __device__ __forceinline__ uint2 step(int index) const { return steps[index]; }
  __device__ __forceinline__ int more_block(int index) const { return more_blocks[index]; }
  __device__ __forceinline__ int item_end(int item) const { return item_ends[item]; }
  __device__ __forceinline__ int row(int index) const { return rows[index]; }
  __device__ __forceinline__ int split(int item) const { return splits[item]; }
  __device__ __forceinline__ SplitPart part(int index) const { return parts[index]; }
  __device__ __forceinline__ int counters() const { return counters_of_tile; }
  __device__ __forceinline__ long long counter_bytes() const { return counter_bytes_in_front; }
  __device__ __forceinline__ long long tile_bytes() const { return bytes_of_tile; }
};

/// One type or another.
template <bool kFirst, class First, class Second>
struct Select {
  using Type = First;
};
template <class First, class Second>
struct Select<false, First, Second> {
  using Type = Second;
};

/// Where the operands of one batch tile come from.
template <class Config>
struct Source {
  const typename Config::Element* x;  ///< of the first batch entry
  const typename Config::Element* w;
  const typename Config::Element* v;  ///< of a glu pair
  const float* gates;                 ///< of the blocks of W, if they have some
  const typename Config::Element* z;  ///< like x, if that is multiplied by the derivative of a function at z
  long long x_stride;
  long long z_stride;
  int valid;  ///< batch entries that exist
};

/// Features of x from the first of a block column on, where the last column is cut (in_features of the config
/// is not 0).
template <class Config>
__device__ __forceinline__ int features_left(int column) {
  return Config::in_features - column * Config::block_in;
}

/// Walks the chunks of one worker ahead of the arithmetic. What a thread needs to know of the next chunk is
/// read while the one before is being copied and multiplied, so that no copy waits for an index. Nor for a
/// gate (kGlu): the step that says whose gate it is has been read one chunk earlier.
template <class Table, int kBlocks, int kMerge, int kWanted, bool kGlu = false>
struct Feed {
  static_assert(!kGlu || kMerge == 1, "the gate is that of the step's only block");
  const Table table;
  const float* const gates;
  const int own;  ///< which of a chunk's blocks this thread copies
  int chunk;
  const int end;
  Step step{0};
  int block[kWanted];  ///< of the rows that this thread copies; -1: absent from a merged step
  float gate = 1;      ///< of the block; 0 where there is none

  /// Where kMerge > 1, `wanted(i)` is the place in the step of the block that the thread's i-th rows are of.
  template <class Wanted>
  __device__ __forceinline__ Feed(Table from, int worker, int own_block, Wanted wanted,
                                  const float* all_gates = nullptr)
      : table(from),
        gates(all_gates),
        own(own_block),
        chunk(from.worker(worker).chunk),
        end(from.worker(worker + 1).chunk) {
    if constexpr (kGlu) later = table.step(chunk * kBlocks + own);
    look(wanted);
  }
  __device__ __forceinline__ bool done() const { return chunk >= end; }
  template <class Wanted>
  __device__ __forceinline__ void advance(Wanted wanted) {
    chunk = min(chunk + 1, end);  // there it stays, where a chunk can be read
    look(wanted);
  }

 private:
  uint2 later;  ///< the step of the chunk behind this one, where there are gates

  template <class Wanted>
  __device__ __forceinline__ void look(Wanted wanted) {
    const int index = chunk * kBlocks + own;
    const uint2 entry = kGlu ? later : table.step(index);
    step.bits = entry.x;
    if constexpr (kGlu) {
      gate = step.present() ? gates[entry.y] : 0.0f;
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
