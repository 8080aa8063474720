#pragma once

#include "ptx.cuh"
#include "ptx_mma.cuh"
#include "schedule.cuh"

// Operand loading for small batches, where reading the weight takes most of the time: each warp copies from
// global memory to its own shared memory, and never waits for another warp.

namespace sparsekiln {

/// Reads the steps of every kStride-th chunk of a worker, which are those of one warp, ahead of the copies.
/// The lanes read the steps of the next 32 / kBlocks chunks at once, as many chunks before the first of them
/// is copied, and exchange them by shuffles.
template <class Table, int kBlocks, int kStride>
struct WarpFeed {
  enum : int { kHeld = 32 / kBlocks };  ///< chunks whose steps are held

  const Table table;
  const int own;  ///< which of a chunk's blocks this lane copies
  int chunk;      ///< the next chunk
  const int end;
  int at = 0;   ///< the position of that chunk among those held
  uint2 held;   ///< the step that this lane holds
  uint2 later;  ///< likewise, of the chunks after those

  __device__ __forceinline__ WarpFeed(Table from, int worker, int own_block, int first)
      : table(from),
        own(own_block),
        chunk(from.worker(worker).chunk + first),
        end(from.worker(worker + 1).chunk),
        held(look(0)),
        later(look(kHeld)) {}
  __device__ __forceinline__ bool done() const { return chunk >= end; }
  __device__ __forceinline__ Step step() const {
    return {__shfl_sync(0xffffffff, held.x, at * kBlocks + own)};
  }
  __device__ __forceinline__ int block() const {
    return static_cast<int>(__shfl_sync(0xffffffff, held.y, at * kBlocks + own));
  }
  __device__ __forceinline__ void advance() {
    chunk += kStride;
    if (++at < kHeld) return;
    at = 0;
    held = later;
    later = look(kHeld);
  }

 private:
  /// Reads this lane's step of the chunks that start `ahead` positions further on. After the last chunk there
  /// is one that can be read.
  __device__ __forceinline__ uint2 look(int ahead) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    return table.step(min(chunk + (ahead + lane / kBlocks) * kStride, end) * kBlocks + lane % kBlocks);
  }
};

/// The stages through which the chunks of one warp pass: every Config::warps-th chunk of the worker.
///
/// A chunk is 64 bytes of k of all rows of W and x: a segment of a block, a block, or kBlocks blocks of the
/// item. Rows are copied in units of eight rows: lane l copies the 16 bytes l % 4 of row l / 4. Each lane
/// reads what it has copied itself: the words are its own fragments of the tensor core's operands, as long as
/// both operands take their k's in this order. Reads of 32 lanes use all banks equally.
///
/// Where an item has too few blocks to fill its last chunk, both operands are filled with zeros; so are rows
/// of x that have no batch row.
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
    /// how many of the four lanes that share a row copy from the same block
    kBlockLanes = kRowBytes < 64 ? kRowBytes / 16 : 4,
    kBlocks = 4 / kBlockLanes,
    kBlockBytes = Config::block_out * kRowBytes,
    kUnitBytes = 32 * 16,
    kUnitsX = Config::tile_n / 8,
    kUnitsW = Config::block_out / 8,
    kStageBytes = (kUnitsX + kUnitsW) * kUnitBytes,
    kWarpBytes = Config::stages * kStageBytes,
  };
  using ScheduleFeed = WarpFeed<Table, kBlocks, kStride>;

  const int row = static_cast<int>(threadIdx.x % 32 / 4);  ///< the row of a unit that this lane copies
  const unsigned first_stage = ptx::kept(warp_memory());
  const char* const x_row;
  const char* const w_row;
  const long long x_unit;  ///< bytes from one unit of x to the next
  const int valid;         ///< batch rows of the tile that exist
  ScheduleFeed feed;
  unsigned reading = first_stage + (Config::stages - 1) * kStageBytes;  ///< the stage that is read
  unsigned writing = first_stage;                                       ///< the stage that is filled next
  bool held_any = false;                                                ///< whether `held` has a chunk
  uint4 held[Config::async_copy ? 1 : kUnitsX + kUnitsW];  ///< for targets without asynchronous copies

  __device__ __forceinline__ WarpStages(const Table& table, int worker, const Source<Config>& from)
      : x_row(ptx::kept(reinterpret_cast<const char*>(from.x) + row * from.x_stride * kElementBytes +
                        place_in_row())),
        w_row(ptx::kept(reinterpret_cast<const char*>(from.w) + row * kRowBytes + place_in_row())),
        x_unit(ptx::kept(8 * from.x_stride * kElementBytes)),
        valid(from.valid),
        feed(table, worker, static_cast<int>(threadIdx.x % 4 / kBlockLanes), first()) {
#pragma unroll
    for (int stage = 0; stage < Config::stages - 1; ++stage) {
      take();
      put();
    }
  }

  __device__ static __forceinline__ int first() { return static_cast<int>(threadIdx.x / 32); }
  __device__ __forceinline__ void acquire(bool) {
    reading = after(reading);
    if constexpr (Config::async_copy) ptx::wait_copies<Config::stages - 2>();
    // Lanes may read what others have copied, and others have read what is overwritten now.
    if constexpr (!Config::tensor_cores) __syncwarp();
    take();
    if constexpr (Config::async_copy) put();
  }
  __device__ __forceinline__ void release() {
    if constexpr (!Config::async_copy) put();
  }
  /// The address of the first unit. Unit u follows at u · kUnitBytes, and within it the 16 bytes of lane l at
  /// 16 · l.
  __device__ __forceinline__ unsigned x() const { return reading; }
  __device__ __forceinline__ unsigned w() const { return reading + kUnitsX * kUnitBytes; }

 private:
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
  /// Queues the copies of the next chunk, or reads it into registers; put() completes the transfer to its
  /// stage.
  __device__ __forceinline__ void take() {
    held_any = !feed.done();
    if (held_any) {
      const Step step = feed.step();
      const bool present = kBlocks == 1 || step.present();
      const char* from_x = x_row + static_cast<long long>(step.column()) * kRowBytes;
      const char* from_w = w_row + static_cast<long long>(feed.block()) * kBlockBytes;
      if constexpr (kRowBytes > 64) {
        from_x += step.segment() * 64;
        from_w += step.segment() * 64;
      }
      const int batch_rows = present ? valid - row : 0;
      if constexpr (Config::async_copy) {
        const unsigned to = writing + threadIdx.x % 32 * 16;
        copy_x<0>(to, from_x, batch_rows);
        copy_w<0>(to, from_w, present);
      } else {
        fetch(from_x, batch_rows, from_w, present);
      }
    }
    feed.advance();
  }
  __device__ __forceinline__ void put() {
    if constexpr (Config::async_copy) {
      ptx::commit_copies();
    } else if (held_any) {
#pragma unroll
      for (int unit = 0; unit < kUnitsX + kUnitsW; ++unit)
        ptx::store_shared(writing + threadIdx.x % 32 * 16 + unit * kUnitBytes, held[unit]);
    }
    writing = after(writing);
  }
  /// `batch_rows`: batch rows from this lane's first row on that exist.
  template <int kUnit>
  __device__ __forceinline__ void copy_x(unsigned to, const char* from, int batch_rows) const {
    ptx::copy_async<kUnit * kUnitBytes, 0>(to, from + kUnit * x_unit, 8 * kUnit < batch_rows ? 16 : 0);
    if constexpr (kUnit + 1 < kUnitsX) copy_x<kUnit + 1>(to, from, batch_rows);
  }
  template <int kUnit>
  __device__ __forceinline__ void copy_w(unsigned to, const char* from, bool present) const {
    ptx::copy_async<(kUnitsX + kUnit) * kUnitBytes, kUnit * 8 * kRowBytes>(to, from, present ? 16 : 0);
    if constexpr (kUnit + 1 < kUnitsW) copy_w<kUnit + 1>(to, from, present);
  }
  __device__ __forceinline__ void fetch(const char* from_x, int batch_rows, const char* from_w,
                                        bool present) {
#pragma unroll
    for (int unit = 0; unit < kUnitsX + kUnitsW; ++unit) {
      const bool exists = unit < kUnitsX ? 8 * unit < batch_rows : present;
      const char* const from =
          unit < kUnitsX ? from_x + unit * x_unit : from_w + (unit - kUnitsX) * (8 * kRowBytes);
      held[unit] = make_uint4(0, 0, 0, 0);
      if (exists) held[unit] = *reinterpret_cast<const uint4*>(from);
    }
  }
};

}  // namespace sparsekiln
