#pragma once

#include "load_warp.cuh"
#include "panels.cuh"

// Operand loading for small batches without shared memory: each lane loads its own fragments of both operands
// into registers, and no warp waits for another one.

namespace sparsekiln {
namespace ptx {

/// Loads 4, 8 or 16 bytes of what no kernel writes meanwhile and is not read again, where `wanted` (PTX ISA,
/// "Data Movement: ld.global.nc"). It is predicated: after a branch ptxas awaits all loads in flight
/// together.
template <long long kBytes>
__device__ __forceinline__ void load_once(unsigned (&words)[1], const char* global, bool wanted) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %3, 0;\n\t"
      "@p ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1+%2];\n\t}"
      : "+r"(words[0])
      : "l"(global), "n"(kBytes), "r"(static_cast<int>(wanted)));
}
template <long long kBytes>
__device__ __forceinline__ void load_once(unsigned (&words)[2], const char* global, bool wanted) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %4, 0;\n\t"
      "@p ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2+%3];\n\t}"
      : "+r"(words[0]), "+r"(words[1])
      : "l"(global), "n"(kBytes), "r"(static_cast<int>(wanted)));
}
template <long long kBytes>
__device__ __forceinline__ void load_once(unsigned (&words)[4], const char* global, bool wanted) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %6, 0;\n\t"
      "@p ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4+%5];\n\t}"
      : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
      : "l"(global), "n"(kBytes), "r"(static_cast<int>(wanted)));
}
/// Loads as many bytes that an earlier launch may have written, and that other warps read as well, where
/// `wanted`.
template <long long kBytes>
__device__ __forceinline__ void load_cached(unsigned (&words)[1], const char* global, bool wanted) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %3, 0;\n\t"
      "@p ld.global.u32 %0, [%1+%2];\n\t}"
      : "+r"(words[0])
      : "l"(global), "n"(kBytes), "r"(static_cast<int>(wanted))
      : "memory");
}
template <long long kBytes>
__device__ __forceinline__ void load_cached(unsigned (&words)[2], const char* global, bool wanted) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %4, 0;\n\t"
      "@p ld.global.v2.u32 {%0, %1}, [%2+%3];\n\t}"
      : "+r"(words[0]), "+r"(words[1])
      : "l"(global), "n"(kBytes), "r"(static_cast<int>(wanted))
      : "memory");
}
template <long long kBytes>
__device__ __forceinline__ void load_cached(unsigned (&words)[4], const char* global, bool wanted) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %6, 0;\n\t"
      "@p ld.global.v4.u32 {%0, %1, %2, %3}, [%4+%5];\n\t}"
      : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
      : "l"(global), "n"(kBytes), "r"(static_cast<int>(wanted))
      : "memory");
}

}  // namespace ptx

/// The chunks of one warp, every Config::warps-th of the worker, of which Config::stages are under way, each
/// in registers of its own. A chunk is 64 bytes of k, as WarpStages has it: a segment of a block, a block, or
/// kBlocks blocks of the item.
///
/// A load brings the same columns of a block for eight rows, of x or of W: lane l has a quarter of row l / 4.
/// So a load of small blocks reads whole lines of W, and of x where it is in panels. The 16 bytes that a lane
/// has of a row and a chunk are its own fragments, as long as both operands take their k's in this order.
/// Where an item has too few blocks to fill its last chunk, both operands are zeros; so are rows of x that
/// have no batch row.
template <class Config>
struct DirectOperands {
  using Element = typename Config::Element;
  using Table = typename Config::Table;
  enum : int {
    kHeld = Config::stages,
    kStride = Config::warps,
    kElementBytes = sizeof(Element),
    kRowBytes = Config::block_in * kElementBytes,
    kLaneBytes = kRowBytes < 64 ? kRowBytes / 4 : 16,  ///< of a load
    kLaneWords = kLaneBytes / 4,
    kBlocks = 16 / kLaneBytes,
    kBlockBytes = Config::block_out * kRowBytes,
    kColumnBytes = Config::panels ? int{Panels<Config>::kBytes} : int{kRowBytes},
    kUnitsX = Config::tile_n / 8,
    kUnitsW = Config::block_out / 8,
    kWarpBytes = 0,  ///< of shared memory
  };
  using ScheduleFeed = WarpFeed<Table, kBlocks, kStride, kRowBytes, kBlockBytes, kColumnBytes>;
  /// What a lane has of eight rows and a chunk: one load for each block.
  struct Unit {
    unsigned loads[kBlocks][kLaneWords];
    __device__ __forceinline__ unsigned word(int i) const { return loads[i / kLaneWords][i % kLaneWords]; }
    __device__ __forceinline__ void clear() {
#pragma unroll
      for (int i = 0; i < 4; ++i) loads[i / kLaneWords][i % kLaneWords] = 0;
    }
  };

  /// One of the chunks under way, as the items of a worker take it. kLacks: whether the one that follows it
  /// there may lack blocks, or not exist.
  template <int kWhich, bool kLacks>
  struct Chunk {
    DirectOperands& all;
    __device__ __forceinline__ void acquire(bool) {}
    __device__ __forceinline__ void release() { all.template load<kWhich, kLacks>(); }
    __device__ __forceinline__ const Unit& x(int unit) const { return all.x[kWhich][unit]; }
    __device__ __forceinline__ const Unit& w(int unit) const { return all.w[kWhich][unit]; }
  };

  const int row = static_cast<int>(threadIdx.x % 32 / 4);  ///< the row of a unit that this lane has
  const char* const x_row;
  const char* const w_row;
  const long long x_unit;  ///< bytes from one unit of x to the next, where it is not in panels
  const int valid;         ///< batch rows of the tile from this lane's first on that exist
  ScheduleFeed feed;
  Unit x[kHeld][kUnitsX];
  Unit w[kHeld][kUnitsW];

  __device__ __forceinline__ DirectOperands(const Table& table, int worker, const Source<Config>& from)
      : x_row(ptx::kept(reinterpret_cast<const char*>(from.x) +
                        row * (Config::panels ? kRowBytes : from.x_stride * kElementBytes) + place_in_row())),
        w_row(ptx::kept(reinterpret_cast<const char*>(from.w) + row * kRowBytes + place_in_row())),
        x_unit(8 * from.x_stride * kElementBytes),
        valid(from.valid - row),
        feed(table, worker, first()) {
    clear<0>();
    clear<kHeld - 1>();
    load<0, true>();
    if constexpr (kHeld > 1) load<1, true>();
  }

  __device__ static __forceinline__ int first() { return static_cast<int>(threadIdx.x / 32); }
  template <int kWhich, bool kLacks>
  __device__ __forceinline__ Chunk<kWhich, kLacks> chunk() {
    return {*this};
  }
  /// Begins to load the next chunk of the feed, whose steps must be held.
  template <int kWhich, bool kLacks>
  __device__ __forceinline__ void load() {
    static_assert(kWhich < kHeld);
    if constexpr (kLacks && kBlocks > 1) clear<kWhich>();
    load_block<kWhich, kLacks, 0>();
    feed.pass();
  }
  /// How many of the next chunks can be loaded as such that lack no block. Few lack some: those at the ends
  /// of items. A chunk of one block that does not exist is not loaded.
  __device__ __forceinline__ int whole() const { return kBlocks == 1 ? feed.left() : feed.whole(); }
  __device__ __forceinline__ void refill() {
    if (feed.at % 32 == 0) feed.refill();
  }

 private:
  __device__ static __forceinline__ int place_in_row() {
    return static_cast<int>(threadIdx.x % 4) * kLaneBytes;
  }
  template <int kWhich>
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int unit = 0; unit < kUnitsX; ++unit) x[kWhich][unit].clear();
#pragma unroll
    for (int unit = 0; unit < kUnitsW; ++unit) w[kWhich][unit].clear();
  }
  template <int kWhich, bool kLacks, int kBlock>
  __device__ __forceinline__ void load_block() {
    const ChunkPlace place = feed.place(kBlock);
    const bool present = !(kLacks || kBlocks == 1) || place.present();
    load_w<kWhich, kBlock, 0>(place.in_w(w_row), present);
    load_x<kWhich, kBlock, 0>(place.in_x(x_row), present);
    if constexpr (kBlock + 1 < kBlocks) load_block<kWhich, kLacks, kBlock + 1>();
  }
  template <int kWhich, int kBlock, int kUnit>
  __device__ __forceinline__ void load_w(const char* from, bool present) {
    ptx::load_once<static_cast<long long>(kUnit) * 8 * kRowBytes>(w[kWhich][kUnit].loads[kBlock], from,
                                                                  present);
    if constexpr (kUnit + 1 < kUnitsW) load_w<kWhich, kBlock, kUnit + 1>(from, present);
  }
  template <int kWhich, int kBlock, int kUnit>
  __device__ __forceinline__ void load_x(const char* from, bool present) {
    enum : int { kFrom = Config::panels ? kUnit * 8 * kRowBytes : 0 };
    const bool exists = Config::full_tiles || Config::panels || 8 * kUnit < valid;
    ptx::load_cached<kFrom>(x[kWhich][kUnit].loads[kBlock], from, present && exists);
    if constexpr (kUnit + 1 < kUnitsX)
      load_x<kWhich, kBlock, kUnit + 1>(Config::panels ? from : from + x_unit, present);
  }
};

}  // namespace sparsekiln
