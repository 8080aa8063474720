#pragma once

#include "ptx.cuh"
#include "schedule.cuh"

// Operand loading: tiles of x and W, row by row along k, from global to shared memory. Constants are
// enumerators: NVRTC would emit a variable for each static constexpr member.

namespace sparsekiln {

/// Copies kRows × kCols floats, rows `stride` apart, to shared rows of kCols + 4: an odd number of 16-byte
/// units, so that eight threads reading one column of quads in eight neighbouring rows meet no bank conflict.
/// Where kGuarded, rows from `valid` on are not read and become zeros.
template <int kRows, int kCols, int kThreads, bool kGuarded>
struct TileCopy {
  enum : int {
    kPitch = kCols + 4,
    kFloats = kRows * kPitch,
    kQuads = kCols / 4,
    kCount = kRows * kQuads,
    kPerThread = (kCount + kThreads - 1) / kThreads,
  };

  /// Calls use(i, row, column, readable) for each quad of this thread.
  template <class Use>
  __device__ static __forceinline__ void for_each(int valid, Use use) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int quad = static_cast<int>(threadIdx.x) + i * kThreads;
      if (kCount % kThreads != 0 && quad >= kCount) break;
      const int row = quad / kQuads;
      use(i, row, quad % kQuads * 4, !kGuarded || row < valid);
    }
  }

  /// Queues the copy; ptx::commit_copies and wait_copies are the caller's.
  __device__ static __forceinline__ void async(float* shared, const float* global, long long stride,
                                               int valid) {
    for_each(valid, [=](int, int row, int column, bool readable) {
      const float* const from = readable ? global + row * stride + column : global;
      ptx::copy_async(shared + row * kPitch + column, from, readable ? 16 : 0);
    });
  }
  /// Reads this thread's quads into registers.
  __device__ static __forceinline__ void fetch(float4 (&held)[kPerThread], const float* global,
                                               long long stride, int valid) {
    for_each(valid, [&](int i, int row, int column, bool readable) {
      held[i] = make_float4(0, 0, 0, 0);
      if (readable) held[i] = *reinterpret_cast<const float4*>(global + row * stride + column);
    });
  }
  /// Writes them to shared memory.
  __device__ static __forceinline__ void put(float* shared, const float4 (&held)[kPerThread]) {
    for_each(0, [&](int i, int row, int column, bool) {
      *reinterpret_cast<float4*>(shared + row * kPitch + column) = held[i];
    });
  }
};

/// The stages of shared memory through which chunks of x (tile_n × chunk) and W (block_out × chunk) pass, and
/// the order in which they are filled: one stage is filled and used in turn; several are filled ahead, by
/// asynchronous copies (sm_80) or, two of them, through registers.
///
/// For each chunk: acquire(), read x() and w(), release().
template <class Config>
struct OperandStages {
  using CopyX = TileCopy<Config::tile_n, Config::chunk, Config::threads, true>;
  using CopyW = TileCopy<Config::block_out, Config::chunk, Config::threads, false>;
  using Walk = Feed<typename Config::Table, Config::block_in / Config::chunk>;
  enum : int {
    kStageFloats = int{CopyX::kFloats} + int{CopyW::kFloats},
    kFloats = Config::stages * int{kStageFloats},
  };
  enum : bool {
    kAsync = Config::stages > 1 && Config::async_copy,
    kRegisters = Config::stages > 1 && !Config::async_copy,
  };

  float* const shared;
  const float* const x_tile;  ///< of the first batch entry of the tile
  const float* const weights;
  const long long x_stride;
  const int valid;  ///< batch entries of the tile that exist
  Walk feed;
  int filling = 0;  ///< stage that the next chunk goes to
  int current = Config::stages - 1;
  bool holds = false;  ///< registers hold a chunk
  float4 held_x[kRegisters ? CopyX::kPerThread : 1];
  float4 held_w[kRegisters ? CopyW::kPerThread : 1];

  __device__ __forceinline__ OperandStages(const float* x_of_tile, const float* w, long long stride_of_x,
                                           int valid_rows)
      : shared(shared_memory()),
        x_tile(x_of_tile),
        weights(w),
        x_stride(stride_of_x),
        valid(valid_rows),
        feed(static_cast<int>(blockIdx.x)) {
    if constexpr (kAsync) {
#pragma unroll
      for (int stage = 0; stage < Config::stages - 1; ++stage) queue();
    } else if constexpr (kRegisters) {
      fetch();
      put();
    }
  }

  __device__ static __forceinline__ int chunks(int steps) { return Walk::chunks(steps); }
  __device__ __forceinline__ void acquire() {
    current = next(current);
    if constexpr (kAsync) {
      ptx::wait_copies<Config::stages - 2>();
      __syncthreads();
      queue();
    } else if constexpr (kRegisters) {
      __syncthreads();
      fetch();
    } else {
      __syncthreads();
      fill();
      __syncthreads();
    }
  }
  __device__ __forceinline__ const float* x() const { return shared + current * kStageFloats; }
  __device__ __forceinline__ const float* w() const { return x() + CopyX::kFloats; }
  __device__ __forceinline__ void release() {
    if constexpr (kRegisters) put();
  }

 private:
  __device__ static __forceinline__ float* shared_memory() {
    __shared__ __align__(16) float memory[kFloats];
    return memory;
  }
  __device__ static __forceinline__ int next(int stage) {
    return stage + 1 == Config::stages ? 0 : stage + 1;
  }
  __device__ __forceinline__ const float* x_chunk() const {
    return x_tile + static_cast<long long>(feed.column) * Config::block_in + feed.chunk * Config::chunk;
  }
  __device__ __forceinline__ const float* w_chunk() const {
    return weights + static_cast<long long>(feed.step) * (Config::block_out * Config::block_in) +
           feed.chunk * Config::chunk;
  }
  __device__ __forceinline__ void queue() {
    if (!feed.done()) {
      float* const stage = shared + filling * kStageFloats;
      CopyX::async(stage, x_chunk(), x_stride, valid);
      CopyW::async(stage + CopyX::kFloats, w_chunk(), Config::block_in, 0);
      feed.advance();
    }
    ptx::commit_copies();
    filling = next(filling);
  }
  __device__ __forceinline__ void fetch() {
    holds = !feed.done();
    if (!holds) return;
    CopyX::fetch(held_x, x_chunk(), x_stride, valid);
    CopyW::fetch(held_w, w_chunk(), Config::block_in, 0);
    feed.advance();
  }
  __device__ __forceinline__ void put() {
    if (!holds) return;
    float* const stage = shared + filling * kStageFloats;
    CopyX::put(stage, held_x);
    CopyW::put(stage + CopyX::kFloats, held_w);
    filling = next(filling);
  }
  __device__ __forceinline__ void fill() {
    float4 quads_x[CopyX::kPerThread];
    float4 quads_w[CopyW::kPerThread];
    CopyX::fetch(quads_x, x_chunk(), x_stride, valid);
    CopyW::fetch(quads_w, w_chunk(), Config::block_in, 0);
    CopyX::put(shared, quads_x);
    CopyW::put(shared + CopyX::kFloats, quads_w);
    feed.advance();
  }
};

}  // namespace sparsekiln
