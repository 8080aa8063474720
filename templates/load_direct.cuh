#pragma once

#include "load_warp.cuh"

// Operand loading for small batches without shared memory: each lane loads its own fragments of both operands
// into registers, and no warp waits for another one.

namespace sparsekiln {
namespace ptx {

/// Loads 16 bytes of what no kernel writes meanwhile and is not read again, where `wanted` (PTX ISA, "Data
/// Movement: ld.global.nc"). It is predicated: after a branch ptxas awaits all loads in flight together.
template <long long kBytes>
__device__ __forceinline__ void load_once(uint4& value, const char* global, bool wanted) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %6, 0;\n\t"
      "@p ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4+%5];\n\t}"
      : "+r"(value.x), "+r"(value.y), "+r"(value.z), "+r"(value.w)
      : "l"(global), "n"(kBytes), "r"(static_cast<int>(wanted)));
}
/// Loads 16 bytes that an earlier launch may have written, and that other warps read as well, where `wanted`.
__device__ __forceinline__ void load_cached(uint4& value, const char* global, bool wanted) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %5, 0;\n\t@p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
      : "+r"(value.x), "+r"(value.y), "+r"(value.z), "+r"(value.w)
      : "l"(global), "r"(static_cast<int>(wanted))
      : "memory");
}

}  // namespace ptx

/// The chunks of one warp, every Config::warps-th of the worker, of which Config::stages are under way, each
/// in registers of its own. A chunk is 64 bytes of k, as WarpStages has it: lane l has the 16 bytes l % 4 of
/// the rows l / 4, l / 4 + 8, … of both operands, which are its own fragments as long as both take their k's
/// in this order. Where an item has too few blocks to fill its last chunk, both operands are zeros; so are
/// rows of x that have no batch row.
template <class Config>
struct DirectOperands {
  using Element = typename Config::Element;
  using Table = typename Config::Table;
  enum : int {
    kHeld = Config::stages,
    kStride = Config::warps,
    kElementBytes = sizeof(Element),
    kRowBytes = Config::block_in * kElementBytes,
    /// how many of the four lanes that share a row load from the same block
    kBlockLanes = kRowBytes < 64 ? kRowBytes / 16 : 4,
    kBlocks = 4 / kBlockLanes,
    kBlockBytes = Config::block_out * kRowBytes,
    kUnitsX = Config::tile_n / 8,
    kUnitsW = Config::block_out / 8,
    kWarpBytes = 0,  ///< of shared memory
  };
  using ScheduleFeed = WarpFeed<Table, kBlocks, kStride, kRowBytes, kBlockBytes>;

  /// One of the chunks under way, as the items of a worker take it.
  template <int kWhich>
  struct Chunk {
    enum : int { kBlocks = DirectOperands::kBlocks };
    DirectOperands& all;
    __device__ __forceinline__ void acquire(bool) {}
    __device__ __forceinline__ void release() { all.template load<kWhich>(); }
    __device__ __forceinline__ const uint4& x(int unit) const { return all.x[kWhich][unit]; }
    __device__ __forceinline__ const uint4& w(int unit) const { return all.w[kWhich][unit]; }
  };

  const int row = static_cast<int>(threadIdx.x % 32 / 4);  ///< the row of a unit that this lane has
  const char* const x_row;
  const char* const w_row;
  const long long x_unit;  ///< bytes from one unit of x to the next
  const int valid;         ///< batch rows of the tile from this lane's first on that exist
  ScheduleFeed feed;
  uint4 x[kHeld][kUnitsX];
  uint4 w[kHeld][kUnitsW];

  __device__ __forceinline__ DirectOperands(const Table& table, int worker, const Source<Config>& from)
      : x_row(ptx::kept(reinterpret_cast<const char*>(from.x) + row * from.x_stride * kElementBytes +
                        place_in_row())),
        w_row(ptx::kept(reinterpret_cast<const char*>(from.w) + row * kRowBytes + place_in_row())),
        x_unit(ptx::kept(8 * from.x_stride * kElementBytes)),
        valid(from.valid - row),
        feed(table, worker, static_cast<int>(threadIdx.x % 4 / kBlockLanes), first()) {
    clear<0>();
    clear<kHeld - 1>();
    load<0>();
    if constexpr (kHeld > 1) load<1>();
  }

  __device__ static __forceinline__ int first() { return static_cast<int>(threadIdx.x / 32); }
  template <int kWhich>
  __device__ __forceinline__ Chunk<kWhich> chunk() {
    return {*this};
  }
  /// Begins to load the next chunk of the feed, whose steps must be held.
  template <int kWhich>
  __device__ __forceinline__ void load() {
    static_assert(kWhich < kHeld);
    const ChunkPlace chunk = feed.place();
    const char* from_x = chunk.in_x(x_row);
    // Few chunks lack blocks: those at the ends of items.
    if (kBlocks > 1 && __any_sync(0xffffffff, !chunk.present())) clear<kWhich>();
    load_w<kWhich, 0>(chunk.in_w(w_row), chunk.present());
#pragma unroll
    for (int unit = 0; unit < kUnitsX; ++unit) {
      ptx::load_cached(x[kWhich][unit], from_x, chunk.present() && (Config::full_tiles || 8 * unit < valid));
      from_x += x_unit;
    }
    feed.pass();
  }
  /// Chunks that can be loaded before refill() must be called.
  __device__ __forceinline__ int left() const { return feed.left(); }
  __device__ __forceinline__ void refill() {
    if (feed.at % 32 == 0) feed.refill();
  }

 private:
  __device__ static __forceinline__ int place_in_row() {
    return static_cast<int>(threadIdx.x % kBlockLanes) * 16;
  }
  template <int kWhich>
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int unit = 0; unit < kUnitsX; ++unit) x[kWhich][unit] = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int unit = 0; unit < kUnitsW; ++unit) w[kWhich][unit] = make_uint4(0, 0, 0, 0);
  }
  template <int kWhich, int kUnit>
  __device__ __forceinline__ void load_w(const char* from, bool present) {
    ptx::load_once<static_cast<long long>(kUnit) * 8 * kRowBytes>(w[kWhich][kUnit], from, present);
    if constexpr (kUnit + 1 < kUnitsW) load_w<kWhich, kUnit + 1>(from, present);
  }
};

}  // namespace sparsekiln
