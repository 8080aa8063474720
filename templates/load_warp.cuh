#pragma once

#include "ptx.cuh"
#include "ptx_mma.cuh"
#include "schedule.cuh"

// Operand loading for batches so small that the weight's bytes are all that counts: each warp goes its own
// way from global memory to its own shared memory, and waits for no other.

namespace sparsekiln {

/// The stages through which the chunks of one warp pass: of the worker's chunks every Config::warps-th.
///
/// A chunk is 64 bytes of k of all rows of W and x: a part of a block, a block, or kBlocks blocks of the
/// item. Rows are dealt out eight at a time, a unit: lane l has the 16 bytes l % 4 of row l / 4. Every lane
/// finds what it copied where it put it, in words that are its own fragments of the tensor core's operands as
/// long as both operands take their k's in this order, and any 32 lanes meet every bank alike.
///
/// Where an item has too few blocks to fill its last chunk, both operands are filled with zeros; so are rows
/// of x without a batch entry.
///
/// For each chunk: acquire(); read x() and w(); release().
template <class Config>
struct WarpStages {
  using Element = typename Config::Element;
  using Table = typename Config::Table;
  enum : int {
    kStride = Config::warps,
    kElementBytes = sizeof(Element),
    kRowBytes = Config::block_in * kElementBytes,
    kBlockLanes = kRowBytes < 64 ? kRowBytes / 16 : 4,  ///< of the four that share a row, those of one block
    kBlocks = 4 / kBlockLanes,
    kBlockBytes = Config::block_out * kRowBytes,
    kUnitBytes = 32 * 16,
    kUnitsX = Config::tile_n / 8,
    kUnitsW = Config::block_out / 8,
    kStageBytes = (kUnitsX + kUnitsW) * kUnitBytes,
    kWarpBytes = Config::stages * kStageBytes,
  };
  using Walk = Feed<Table, kBlocks, 1, 1, kStride>;

  const int row = static_cast<int>(threadIdx.x % 32 / 4);  ///< of a unit, that this lane copies
  const unsigned first_stage = ptx::kept(warp_memory());
  const char* const x_row;
  const char* const w_row;
  const long long x_unit;  ///< from one unit of x to the next, bytes
  const int valid;         ///< batch entries of the tile that exist
  Walk feed;
  unsigned reading = first_stage + (Config::stages - 1) * kStageBytes;  ///< the stage that is read
  unsigned writing = first_stage;                                       ///< the stage that is filled next

  __device__ __forceinline__ WarpStages(const Table& table, int worker, const Source<Config>& from)
      : x_row(reinterpret_cast<const char*>(from.x) + row * from.x_stride * kElementBytes + place_in_row()),
        w_row(reinterpret_cast<const char*>(from.w) + row * kRowBytes + place_in_row()),
        x_unit(8 * from.x_stride * kElementBytes),
        valid(from.valid),
        feed(table, worker, static_cast<int>(threadIdx.x % 4 / kBlockLanes), OnlyBlock{}, first()) {
#pragma unroll
    for (int stage = 0; stage < Config::stages - 1; ++stage) queue();
  }

  __device__ static __forceinline__ int first() { return static_cast<int>(threadIdx.x / 32); }
  __device__ __forceinline__ void acquire(bool) {
    reading = after(reading);
    if constexpr (Config::async_copy) ptx::wait_copies<Config::stages - 2>();
    __syncwarp();  // lanes may read what others copied, and have read what is overwritten now
    queue();
  }
  __device__ __forceinline__ void release() {}
  /// Where the first unit lies; unit u follows at u · kUnitBytes, of each the 16 bytes of lane l at 16 · l.
  __device__ __forceinline__ unsigned x() const { return reading; }
  __device__ __forceinline__ unsigned w() const { return reading + kUnitsX * kUnitBytes; }

 private:
  struct OnlyBlock {
    __device__ __forceinline__ int operator()(int) const { return 0; }
  };
  __device__ static __forceinline__ unsigned warp_memory() {
    return ptx::dynamic_shared() + threadIdx.x / 32 * kWarpBytes;
  }
  __device__ static __forceinline__ int place_in_row() {
    return static_cast<int>(threadIdx.x % kBlockLanes) * 16;
  }
  __device__ __forceinline__ unsigned after(unsigned stage) const {
    const unsigned next = stage + kStageBytes;
    return next == first_stage + kWarpBytes ? first_stage : next;
  }
  __device__ __forceinline__ void queue() {
    if (!feed.done()) {
      const bool present = kBlocks == 1 || feed.step.present();
      const unsigned to = writing + threadIdx.x % 32 * 16;
      const char* from_x = x_row + static_cast<long long>(feed.step.column()) * kRowBytes;
      const char* from_w = w_row + static_cast<long long>(feed.block[0]) * kBlockBytes;
      if constexpr (kRowBytes > 64) {
        from_x += feed.step.part() * 64;
        from_w += feed.step.part() * 64;
      }
      const int entries = present ? valid - row : 0;
      if constexpr (Config::async_copy) {
        copy_x<0>(to, from_x, entries);
        copy_w<0>(to, present ? from_w : w_row, present);
      } else {
        pass(to, from_x, entries, from_w, present);
      }
    }
    feed.advance(OnlyBlock{});
    if constexpr (Config::async_copy) ptx::commit_copies();
    writing = after(writing);
  }
  /// `entries`: batch entries from this lane's first row on that exist.
  template <int kUnit>
  __device__ __forceinline__ void copy_x(unsigned to, const char* from, int entries) const {
    const bool exists = 8 * kUnit < entries;
    ptx::copy_async<kUnit * kUnitBytes, 0>(to, exists ? from + kUnit * x_unit : x_row, exists ? 16 : 0);
    if constexpr (kUnit + 1 < kUnitsX) copy_x<kUnit + 1>(to, from, entries);
  }
  template <int kUnit>
  __device__ __forceinline__ void copy_w(unsigned to, const char* from, bool present) const {
    ptx::copy_async<(kUnitsX + kUnit) * kUnitBytes, kUnit * 8 * kRowBytes>(to, from, present ? 16 : 0);
    if constexpr (kUnit + 1 < kUnitsW) copy_w<kUnit + 1>(to, from, present);
  }
  /// Where there is no asynchronous copy: through registers, all loads ahead of the first store.
  __device__ __forceinline__ void pass(unsigned to, const char* from_x, int entries, const char* from_w,
                                       bool present) const {
    uint4 held[kUnitsX + kUnitsW];
#pragma unroll
    for (int unit = 0; unit < kUnitsX + kUnitsW; ++unit) {
      const bool exists = unit < kUnitsX ? 8 * unit < entries : present;
      const char* const from =
          unit < kUnitsX ? from_x + unit * x_unit : from_w + (unit - kUnitsX) * (8 * kRowBytes);
      held[unit] = make_uint4(0, 0, 0, 0);
      if (exists) held[unit] = *reinterpret_cast<const uint4*>(from);
    }
#pragma unroll
    for (int unit = 0; unit < kUnitsX + kUnitsW; ++unit)
      ptx::store_shared(to + unit * kUnitBytes, held[unit]);
  }
};

}  // namespace sparsekiln
