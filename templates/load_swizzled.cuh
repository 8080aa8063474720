#pragma once

#include "ptx.cuh"
#include "ptx_mma.cuh"
#include "schedule.cuh"
#include "swizzle.cuh"

// Operand loading for tensor cores: rows of x and W, contiguous along k, to swizzled shared memory.

namespace sparsekiln {

/// The stages of dynamic shared memory through which chunks of x (tile_n rows) and W (block_out · merge rows)
/// pass. A row of a chunk has chunk_units × 16 bytes: of one block, or of several blocks of the item. Where
/// an item has too few blocks to fill its last chunk, both operands are filled with zeros, so that no Inf of
/// x meets a zero of the fill; where merging stacks a block that is absent, its rows of W are.
///
/// With one output tile an item, a stage has x and W. With several, tiles of x have a ring of their own, of
/// as many places: a chunk that has the same input as the one before is multiplied with the tile that is
/// there.
///
/// For each chunk: acquire(); read x() and w(), and call advance(part, of) for all parts in order, which
/// spreads the copies of a later chunk over the arithmetic of this one; release().
template <class Config>
struct SwizzledStages {
  using Element = typename Config::Element;
  using Table = typename Config::Table;
  using Rows = Swizzle<Config::chunk_units>;
  using Order = RowOrder<Config::weight_a, Config::run>;
  enum : int {
    kUnits = Config::chunk_units,
    kElements = 16 / sizeof(Element),  ///< of a unit
    kBlockUnits = Config::block_in / kElements,
    kBlocks = kUnits > kBlockUnits ? kUnits / kBlockUnits : 1,
    kOutputs = Config::block_out * Config::merge,
    kBlockElements = Config::block_out * Config::block_in,
    kCountX = Config::tile_n * kUnits,
    kCountW = kOutputs * kUnits,
    kPassesX = (kCountX + Config::threads - 1) / Config::threads,
    kPassesW = (kCountW + Config::threads - 1) / Config::threads,
    kPasses = kPassesX + kPassesW,
    kPassRows = Config::threads / kUnits,
    kBytesX = kCountX * 16,
    kBytesW = kCountW * 16,
    kWanted = Config::merge > 1 ? kPassesW : 1,  ///< blocks that a thread copies rows of
  };
  enum : bool {
    kAsync = Config::async_copy,  ///< else a chunk passes through registers
    kRegisters = Config::stages > 1 && !kAsync,
    kRing = Config::rows > 1,  ///< x has its own
  };
  enum : int {
    kFirstW = kRing ? Config::stages * kBytesX : kBytesX,
    kNextW = kRing ? kBytesW : kBytesX + kBytesW,  ///< from one stage of W to the next
  };
  using Walk = Feed<Table, kBlocks, kWanted>;

  const int row;    ///< of shared memory, that this thread copies to in the first pass
  const int place;  ///< its unit there, from the first row of x or W on, in bytes
  const Element* const x_row;
  const Element* const w_row;
  const long long x_pass;  ///< from one pass to the next, elements
  const int valid;         ///< batch entries of the tile that exist
  Walk feed;
  int current = Config::stages - 1;  ///< the stage that is read
  unsigned reading;                  ///< the address of its W
  // The ring of x.
  unsigned reading_x = ptx::dynamic_shared() + (Config::stages - 1) * kBytesX;
  unsigned next_x = ptx::dynamic_shared();  ///< where the next tile goes
  // The chunk that is being copied.
  unsigned writing_x = 0;  ///< where this thread's first unit of x goes
  unsigned writing_w = 0;  ///< likewise
  const Element* from_x = nullptr;
  const Element* from_w = nullptr;
  int entries = 0;     ///< of the tile from `row` on, that exist
  bool live = false;   ///< there is such a chunk
  bool has_x = false;  ///< it brings a tile of x
  uint4 held[kAsync ? 1 : kPasses];

  __device__ __forceinline__ SwizzledStages(const Table& table, int worker, const Source<Config>& from)
      : row(static_cast<int>(threadIdx.x) / kUnits),
        place(Rows::offset(row, unit())),
        x_row(from.x + row * from.x_stride + unit() % kBlockUnits * kElements),
        w_row(from.w + Order::output(row) % Config::block_out * Config::block_in +
              unit() % kBlockUnits * kElements),
        x_pass(from.x_stride * kPassRows),
        valid(from.valid),
        feed(table, worker, unit() / kBlockUnits, Config::merge, Merged{row}),
        reading(ptx::dynamic_shared() + kFirstW + current * kNextW) {
    if constexpr (Config::stages > 1) {
#pragma unroll(Config::unrolled_workers > 0 ? Config::stages : 1)
      for (int stage = 0; stage < Config::stages - 1; ++stage) {
        begin(ptx::dynamic_shared() + kFirstW + stage * kNextW);
        copy_all();
        end();
      }
    }
  }

  /// The stage that was read last is filled next. `same_input`: as the table says of the chunk.
  __device__ __forceinline__ void acquire(bool same_input) {
    if constexpr (kAsync && Config::stages > 1) ptx::wait_copies<Config::stages - 2>();
    __syncthreads();
    if constexpr (kRing)
      if (!same_input) reading_x = after(reading_x);
    begin(reading);
    if constexpr (Config::stages > 1) {
      const bool wraps = ++current == Config::stages;
      reading += wraps ? -((Config::stages - 1) * kNextW) : int{kNextW};
      if (wraps) current = 0;
      if constexpr (kRegisters) fetch();
    } else {
      copy_all();
      end();
      if constexpr (kAsync) ptx::wait_copies<0>();
      __syncthreads();
    }
  }
  __device__ __forceinline__ unsigned x() const { return kRing ? reading_x : reading - kBytesX; }
  __device__ __forceinline__ unsigned w() const { return reading; }
  /// Queues copies `part` of `of`, which is one of as many equal shares.
  __device__ __forceinline__ void advance(int part, int of) {
    if constexpr (kAsync && Config::stages > 1) queue(kPasses * part / of, kPasses * (part + 1) / of);
  }
  __device__ __forceinline__ void release() {
    if constexpr (Config::stages > 1) end();
  }

 private:
  /// Which of a step's stacked blocks the rows of a thread's passes are of.
  struct Merged {
    int row;
    __device__ __forceinline__ int operator()(int pass) const {
      if constexpr (Config::merge == 1) return 0;
      const int output = Order::output(row) + Order::template below<kPassRows>(row, pass);
      return output < kOutputs ? output / Config::block_out : 0;
    }
  };
  __device__ static __forceinline__ int unit() { return static_cast<int>(threadIdx.x) % kUnits; }
  /// The place in the ring of x behind one of it.
  __device__ static __forceinline__ unsigned after(unsigned place_of_x) {
    const unsigned end = ptx::dynamic_shared() + Config::stages * kBytesX;
    const unsigned next = place_of_x + kBytesX;
    return next == end ? ptx::dynamic_shared() : next;
  }

  /// Turns to the feed's chunk, which goes to the stage whose W is at `stage`.
  __device__ __forceinline__ void begin(unsigned stage) {
    live = !feed.done();
    has_x = !kRing || !feed.step.same_input();
    entries = feed.step.present() ? valid - row : 0;
    writing_w = stage + place;
    if constexpr (kRing) {
      writing_x = next_x + place;
      if (live && has_x) next_x = after(next_x);
    } else {
      writing_x = writing_w - kBytesX;
    }
    const int part = feed.step.part() * (kUnits * kElements);
    from_x = x_row + static_cast<long long>(feed.step.column()) * Config::block_in + part;
    from_w = w_row + part;
    if constexpr (Config::merge == 1) from_w += static_cast<long long>(feed.block[0]) * kBlockElements;
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
      feed.advance(Config::merge, Merged{row});
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
      if (!in_tile<kCountX>(pass) || !has_x) return;
      use(Rows::template below<kPassRows>(writing_x, pass), from_x, pass * kPassRows < entries);
      from_x += x_pass;
    } else {
      pass -= kPassesX;
      if (!in_tile<kCountW>(pass)) return;
      const unsigned to = Rows::template below<kPassRows>(writing_w, pass);
      if constexpr (Config::merge == 1) {
        use(to, from_w + Order::template below<kPassRows>(row, pass) * Config::block_in, feed.step.present());
      } else {
        // The rows of one pass may be of another block than those of the first.
        const int output = Order::output(row) + Order::template below<kPassRows>(row, pass);
        const int moved = output % Config::block_out - Order::output(row) % Config::block_out;
        const int block = feed.block[kWanted > 1 ? pass : 0];
        const bool readable = block >= 0;
        use(to,
            from_w + (readable ? static_cast<long long>(block) * kBlockElements : 0) +
                moved * Config::block_in,
            readable);
      }
    }
  }
  template <int kCount>
  __device__ static __forceinline__ bool in_tile(int pass) {
    return kCount % Config::threads == 0 || static_cast<int>(threadIdx.x) + pass * Config::threads < kCount;
  }
};

}  // namespace sparsekiln
