#pragma once

#include "ptx.cuh"
#include "ptx_mma.cuh"
#include "schedule.cuh"

// Operand loading for small batches, where reading the weight takes most of the time: each warp copies from
// global memory to its own shared memory, and never waits for another warp.

namespace sparsekiln {

/// Which part of a block's products a warp computes: those of warp_out of its outputs with one of the
/// weights, its share. Each of the first kShares warps has another one, and each of the kStrides groups of so
/// many warps has chunks of its own, every kStrides-th of the worker.
template <class Config>
struct WarpShare {
  enum : int {
    kSlices = Config::block_out / Config::warp_out,
    kShares = Config::weights * kSlices,
    kStrides = Config::warps / kShares,
  };
  static_assert(kStrides * kShares == Config::warps, "each share has as many warps");
  __device__ static __forceinline__ int warp() { return static_cast<int>(threadIdx.x / 32); }
  /// The first chunk, from the worker's first on.
  __device__ static __forceinline__ int first() { return warp() / kShares; }
  /// The first block's part.
  __device__ static __forceinline__ const typename Config::Element* weight(const Source<Config>& from) {
    const int share = warp() % kShares;
    return weight_of<Config>(share / kSlices, from.w, from.v) +
           share % kSlices * (Config::warp_out * (Config::by_columns ? 1 : Config::block_in));
  }
};

/// Where one of the blocks of a chunk is: 64 bytes of each of its rows, or all that they have.
struct ChunkPlace {
  unsigned input;   ///< from a row of x on, in units of 16 bytes
  unsigned weight;  ///< from the same row of the first block on, in units of 64 bytes; ~0: there is no block

  __device__ __forceinline__ bool present() const { return weight != 0xffffffff; }
  __device__ __forceinline__ const char* in_x(const char* row) const {
    return row + static_cast<unsigned long long>(input) * 16;
  }
  /// Must not be read where there is no block.
  __device__ __forceinline__ const char* in_w(const char* row) const {
    return row + static_cast<unsigned long long>(weight) * 64;
  }
};

/// Reads the steps of every kStride-th chunk of a worker, which are those of one warp, ahead of the copies.
/// The lanes read the steps of 32 / kBlocks chunks at once, with kAhead as many chunks before the first of
/// them is copied, and exchange them by shuffles. A row of a block has kRowBytes; from one block column to
/// the next it is kColumnBytes in x, whose rows have kFeatureBytes (0: whole blocks). Blocks whose scale is 0
/// are taken for absent.
template <class Config, int kBlocks, int kStride, int kColumnBytes>
struct WarpFeed {
  using Table = typename Config::Table;
  enum : bool { kBlockScales = Config::has_block_scales };
  enum : int {
    kHeld = 32 / kBlocks,  ///< chunks whose steps are held
    kElementBytes = sizeof(typename Config::Element),
    kRowBytes = Config::block_in * kElementBytes,
    kBlockBytes = Config::block_out * kRowBytes,
    kFeatureBytes = Config::in_features * kElementBytes,
  };
  /// Whether the steps after those are read before they are needed. Few warps have more than 32 chunks.
  enum : bool { kAhead = kBlocks > 1 };
  static_assert(kColumnBytes % 16 == 0 && kBlockBytes % 64 == 0);

  const Table table;
  int chunk;  ///< the first chunk that was read last
  const int end;
  int at = 0;  ///< the next chunk's first step among those held, modulo 32
  const float* const block_scales;
  ChunkPlace held;   ///< what this lane holds
  ChunkPlace later;  ///< what it holds of the chunks after those
  float held_block_scale;
  float later_block_scale;

  __device__ __forceinline__ WarpFeed(Table from, int worker, int first, const float* all_block_scales)
      : table(from),
        chunk(from.worker(worker).chunk + first),
        end(from.worker(worker + 1).chunk),
        block_scales(all_block_scales) {
    look(held, held_block_scale);
    if constexpr (kAhead) {
      chunk += kHeld * kStride;
      look(later, later_block_scale);
    }
  }
  /// A block of the next chunk. Chunks after the last have no blocks.
  __device__ __forceinline__ ChunkPlace place(int block) const {
    return {__shfl_sync(0xffffffff, held.input, at + block),
            __shfl_sync(0xffffffff, held.weight, at + block)};
  }
  /// Its block scale; 0 where there is no block.
  __device__ __forceinline__ float block_scale(int block) const {
    return __shfl_sync(0xffffffff, held_block_scale, at + block);
  }
  /// Bytes of a row of x from the first byte of a block's on, or of a segment's of it: where x has fewer than
  /// these, they are not there.
  __device__ static __forceinline__ int features_left(const ChunkPlace& place) {
    enum : int { kUnits = kColumnBytes / 16 };
    const int input = static_cast<int>(place.input);
    return kFeatureBytes - (input / kUnits * kRowBytes + input % kUnits * 16);
  }
  __device__ __forceinline__ void pass() { at += kBlocks; }
  /// How many of the next chunks' steps are held.
  __device__ __forceinline__ int left() const { return (32 - at % 32) / kBlocks; }
  /// How many of them have all of their blocks, with all of their features.
  __device__ __forceinline__ int whole() const {
    enum : int { kLeast = kRowBytes < 64 ? int{kRowBytes} : 64 };
    const bool lacks = !held.present() || (kFeatureBytes != 0 && features_left(held) < kLeast);
    const unsigned lacking = __ballot_sync(0xffffffff, lacks) >> (at % 32);
    const int steps = lacking != 0 ? __ffs(static_cast<int>(lacking)) - 1 : 32 - at % 32;
    return steps / kBlocks;
  }
  /// To be called when as many chunks as are held have passed.
  __device__ __forceinline__ void refill() {
    chunk += kHeld * kStride;
    if constexpr (kAhead) {
      held = later;
      held_block_scale = later_block_scale;
      look(later, later_block_scale);
    } else {
      look(held, held_block_scale);
    }
  }
  __device__ __forceinline__ void advance() {
    pass();
    if (at % 32 == 0) refill();
  }

 private:
  /// Reads this lane's step of the next chunks.
  __device__ __forceinline__ void look(ChunkPlace& place, float& block_scale) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int mine = chunk + lane / kBlocks * kStride;
    place = {0, 0xffffffff};
    if constexpr (kBlockScales) block_scale = 0;
    if (mine >= end) return;
    const uint2 entry = table.step(mine * kBlocks + lane % kBlocks);
    const Step step{entry.x};
    bool present = step.present();
    if constexpr (kBlockScales) {
      if (present) block_scale = block_scales[table.block_scale(static_cast<int>(entry.y))];
      present = present && block_scale != 0;
    }
    const unsigned segment = kRowBytes > 64 ? static_cast<unsigned>(step.segment()) : 0;
    // By columns, a segment has 64 bytes of each column of W.
    const unsigned segment_of_w = segment * (Config::by_columns ? Config::block_out : 1);
    place = {static_cast<unsigned>(step.column()) * (kColumnBytes / 16) + segment * 4,
             present ? entry.y * (kBlockBytes / 64) + segment_of_w : 0xffffffff};
  }
};

/// The stages through which the chunks of one warp pass, as WarpShare has them.
///
/// A chunk is 64 bytes of k of all rows of W and x: a segment of a block, a block, or kBlocks blocks of the
/// item. Rows are copied in units of eight rows: lane l copies the 16 bytes l % 4 of row l / 4. Each lane
/// reads what it has copied itself: the words are its own fragments of the tensor core's operands, as long as
/// both operands take their k's in this order. Reads of 32 lanes use all banks equally.
///
/// Where an item has too few blocks to fill its last chunk, both operands are filled with zeros; so are what
/// a block has beyond the features of x, and rows of x that have no batch row.
///
/// For each chunk: acquire(); read x() and w(); release().
template <class Config>
struct WarpStages {
  using Element = typename Config::Element;
  using Table = typename Config::Table;
  using Share = WarpShare<Config>;
  enum : int {
    kStride = Share::kStrides,
    kStepWeights = Config::weights,
    kElementBytes = sizeof(Element),
    kRowBytes = Config::block_in * kElementBytes,
    /// how many of the four lanes that share a row copy from the same block
    kBlockLanes = kRowBytes < 64 ? kRowBytes / 16 : 4,
    kBlocks = 4 / kBlockLanes,
    kUnitBytes = 32 * 16,
    kUnitsX = Config::tile_n / 8,
    kUnitsW = Config::warp_out / 8,
    kInterleaved = 1,  ///< tiles of eight outputs whose outputs alternate
    kStageBytes = (kUnitsX + kUnitsW) * kUnitBytes,
    kWarpBytes = Config::stages * kStageBytes,
  };
  using ScheduleFeed = WarpFeed<Config, kBlocks, kStride, kRowBytes>;

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
        w_row(
            ptx::kept(reinterpret_cast<const char*>(Share::weight(from)) + row * kRowBytes + place_in_row())),
        x_unit(ptx::kept(8 * from.x_stride * kElementBytes)),
        valid(from.valid),
        feed(table, worker, first(), from.block_scales) {
    // The zeros of chunks after the last one of the batch tile before may be on their way to these stages.
    if constexpr (Config::async_copy && kBlocks > 1) ptx::wait_copies<0>();
#pragma unroll
    for (int stage = 0; stage < Config::stages - 1; ++stage) {
      take();
      put();
    }
  }

  __device__ static __forceinline__ int first() { return Share::first(); }
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
    const ChunkPlace chunk = feed.place(static_cast<int>(threadIdx.x % 4 / kBlockLanes));
    held_any = kBlocks > 1 || chunk.present();
    if (held_any) {
      const char* const from_x = chunk.in_x(x_row);
      const char* const from_w = chunk.in_w(w_row);
      bool present = kBlocks == 1 || chunk.present();
      if constexpr (Config::in_features != 0) present = present && feed.features_left(chunk) > place_in_row();
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
