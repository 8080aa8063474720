#pragma once

// The schedule as a kernel sees it: tables of the emitted source, read through the entry's `Table`.

namespace sparsekiln {

/// A stretch of steps that accumulate into one output tile. Step s multiplies weight block s.
struct __align__(16) Item {
  int output;      ///< block row of y
  int first_step;  ///< its weight block, and its place in the table of columns
  int steps;       ///< 0: an empty row
  int split;       ///< place in the table of split parts; -1: a whole row
};

/// One part of a row that several CTAs share.
struct __align__(16) SplitPart {
  int slot;     ///< its partial sums
  int first;    ///< the slot of the row's first part; the others follow in ascending order
  int parts;    ///< of the row
  int counter;  ///< of the row's arrivals
};

/// Walks the chunks of one worker's items, ahead of the arithmetic: kChunks of them to a block, or kBlocks
/// blocks of one item to a chunk, of which the last chunk of an item may lack some. The column that a thread
/// needs for the next chunk is read while the one before is being copied and multiplied, so that no copy
/// waits for an index.
template <class Table, int kChunks, int kBlocks = 1>
struct Feed {
  const int own;  ///< which of a chunk's blocks this thread copies
  int item;
  int items_end;
  int step = 0;  ///< of the chunk's first block
  int steps_end = 0;
  int chunk = 0;   ///< of the block
  int column = 0;  ///< of this thread's block

  __device__ __forceinline__ explicit Feed(int worker, int own_block = 0)
      : own(own_block), item(Table::worker_begin(worker)), items_end(Table::worker_begin(worker + 1)) {
    find();
  }
  __device__ __forceinline__ bool done() const { return step >= steps_end; }
  /// Whether this thread's block exists; its chunk does.
  __device__ __forceinline__ bool present() const { return kBlocks == 1 || step + own < steps_end; }
  __device__ __forceinline__ void advance() {
    if (++chunk < kChunks) return;
    chunk = 0;
    step += kBlocks;
    find();
  }
  /// Chunks of an item.
  __device__ static __forceinline__ int chunks(int steps) {
    return kBlocks == 1 ? steps * kChunks : (steps + kBlocks - 1) / kBlocks;
  }

 private:
  __device__ __forceinline__ void find() {
    while (step >= steps_end && item < items_end) {
      const Item next = Table::item(item++);
      step = next.first_step;
      steps_end = step + next.steps;
    }
    if (step + own < steps_end) column = Table::column(step + own);
  }
};

}  // namespace sparsekiln
