#pragma once

#include "ptx.cuh"
#include "ptx_mma.cuh"
#include "schedule.cuh"
#include "swizzle.cuh"

// Operand loading for tensor cores: rows of x and W, contiguous along k, to swizzled shared memory.

namespace sparsekiln {

/// The stages of dynamic shared memory through which chunks of x (tile_n rows) and W (block_out rows) pass. A
/// row of a chunk has chunk_units × 16 bytes: of one block, or of several consecutive blocks of the item.
/// Where an item has too few blocks to fill its last chunk, both operands are filled with zeros, so that no
/// Inf of x meets a zero of the fill.
///
/// For each chunk: acquire(); read x() and w(), and call advance(part, of) for all parts in order, which
/// spreads the copies of a later chunk over the arithmetic of this one; release().
template <class Config>
struct SwizzledStages {
  using Element = typename Config::Element;
  using Rows = Swizzle<Config::chunk_units>;
  using Order = RowOrder<Config::weight_a, Config::run>;
  enum : int {
    kUnits = Config::chunk_units,
    kElements = 16 / sizeof(Element),  ///< of a unit
    kBlockUnits = Config::block_in / kElements,
    kBlocks = kUnits > kBlockUnits ? kUnits / kBlockUnits : 1,
    kChunks = kUnits > kBlockUnits ? 1 : kBlockUnits / kUnits,
    kCountX = Config::tile_n * kUnits,
    kCountW = Config::block_out * kUnits,
    kPassesX = (kCountX + Config::threads - 1) / Config::threads,
    kPassesW = (kCountW + Config::threads - 1) / Config::threads,
    kPasses = kPassesX + kPassesW,
    kPassRows = Config::threads / kUnits,
    kBytesX = kCountX * 16,
    kStageBytes = kBytesX + kCountW * 16,
  };
  enum : bool {
    kAsync = Config::async_copy,  ///< else a chunk passes through registers
    kRegisters = Config::stages > 1 && !kAsync,
  };
  using Walk = Feed<typename Config::Table, kChunks, kBlocks>;

  const int row;    ///< of shared memory, that this thread copies to in the first pass
  const int place;  ///< its unit there, from the first row of x or W on, in bytes
  const Element* const x_row;
  const Element* const w_row;
  const long long x_pass;  ///< from one pass to the next, elements
  const int valid;         ///< batch entries of the tile that exist
  Walk feed;
  int current = Config::stages - 1;  ///< the stage that is read
  unsigned reading;                  ///< its address
  // The chunk that is being copied.
  unsigned writing = 0;  ///< where this thread's first unit of x goes
  const Element* from_x = nullptr;
  const Element* from_w = nullptr;
  int entries = 0;       ///< of the tile from `row` on, that exist
  bool present = false;  ///< this thread's block of it
  bool live = false;     ///< there is such a chunk
  uint4 held[kAsync ? 1 : kPasses];

  __device__ __forceinline__ SwizzledStages(const Element* x_of_tile, const Element* w, long long x_stride,
                                            int valid_rows)
      : row(static_cast<int>(threadIdx.x) / kUnits),
        place(Rows::offset(row, unit())),
        x_row(x_of_tile + row * x_stride + unit() % kBlockUnits * kElements),
        w_row(w + (unit() / kBlockUnits * Config::block_out + Order::output(row)) * Config::block_in +
              unit() % kBlockUnits * kElements),
        x_pass(x_stride * kPassRows),
        valid(valid_rows),
        feed(static_cast<int>(blockIdx.x), unit() / kBlockUnits),
        reading(ptx::dynamic_shared() + current * kStageBytes) {
    if constexpr (Config::stages > 1) {
#pragma unroll 1
      for (int stage = 0; stage < Config::stages - 1; ++stage) {
        begin(ptx::dynamic_shared() + stage * kStageBytes);
        copy_all();
        end();
      }
    }
  }

  __device__ static __forceinline__ int chunks(int steps) { return Walk::chunks(steps); }
  /// The stage that was read last is filled next.
  __device__ __forceinline__ void acquire() {
    if constexpr (kAsync && Config::stages > 1) ptx::wait_copies<Config::stages - 2>();
    __syncthreads();
    begin(reading);
    if constexpr (Config::stages > 1) {
      const bool wraps = ++current == Config::stages;
      reading += wraps ? -((Config::stages - 1) * kStageBytes) : int{kStageBytes};
      if (wraps) current = 0;
      if constexpr (kRegisters) fetch();
    } else {
      copy_all();
      end();
      if constexpr (kAsync) ptx::wait_copies<0>();
      __syncthreads();
    }
  }
  __device__ __forceinline__ unsigned x() const { return reading; }
  __device__ __forceinline__ unsigned w() const { return reading + kBytesX; }
  /// Queues copies `part` of `of`, which is one of as many equal shares.
  __device__ __forceinline__ void advance(int part, int of) {
    if constexpr (kAsync && Config::stages > 1) queue(kPasses * part / of, kPasses * (part + 1) / of);
  }
  __device__ __forceinline__ void release() {
    if constexpr (Config::stages > 1) end();
  }

 private:
  __device__ static __forceinline__ int unit() { return static_cast<int>(threadIdx.x) % kUnits; }

  /// Turns to the feed's chunk, which goes to the stage at `stage`.
  __device__ __forceinline__ void begin(unsigned stage) {
    live = !feed.done();
    present = feed.present();
    entries = present ? valid - row : 0;
    writing = stage + place;
    from_x =
        x_row + static_cast<long long>(feed.column) * Config::block_in + feed.chunk * (kUnits * kElements);
    from_w = w_row + static_cast<long long>(feed.step) * (Config::block_out * Config::block_in) +
             feed.chunk * (kUnits * kElements);
  }
  /// Its copies, all that there are.
  __device__ __forceinline__ void copy_all() {
    if constexpr (kAsync) {
      queue(0, kPasses);
    } else {
      fetch();
    }
  }
  /// Makes them land in their stage, at once or later.
  __device__ __forceinline__ void end() {
    if (live) {
      if constexpr (!kAsync) put();
      feed.advance();
    }
    if constexpr (kAsync) ptx::commit_copies();
  }

  __device__ __forceinline__ void queue(int first, int last) {
    if (!live) return;
#pragma unroll
    for (int pass = first; pass < last; ++pass)
      copy(pass, [](unsigned to, const Element* from, bool readable) {
        ptx::copy_async(to, from, readable ? 16 : 0);
      });
  }
  __device__ __forceinline__ void fetch() {
    if (!live) return;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
      copy(pass, [&](unsigned, const Element* from, bool readable) {
        held[pass] = make_uint4(0, 0, 0, 0);
        if (readable) held[pass] = *reinterpret_cast<const uint4*>(from);
      });
  }
  __device__ __forceinline__ void put() {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
      copy(pass, [&](unsigned to, const Element*, bool) { ptx::store_shared(to, held[pass]); });
  }

  /// Calls use(to, from, readable) for this thread's unit of a pass, if it has one; passes go in order.
  template <class Use>
  __device__ __forceinline__ void copy(int pass, Use use) {
    if (pass < kPassesX) {
      if (!in_tile<kCountX>(pass)) return;
      use(Rows::template below<kPassRows>(writing, pass), from_x, pass * kPassRows < entries);
      from_x += x_pass;
    } else {
      pass -= kPassesX;
      if (!in_tile<kCountW>(pass)) return;
      use(Rows::template below<kPassRows>(writing, pass) + kBytesX,
          from_w + Order::template below<kPassRows>(row, pass) * Config::block_in, present);
    }
  }
  template <int kCount>
  __device__ static __forceinline__ bool in_tile(int pass) {
    return kCount % Config::threads == 0 || static_cast<int>(threadIdx.x) + pass * Config::threads < kCount;
  }
};

}  // namespace sparsekiln
