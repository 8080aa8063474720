#pragma once

#include "load_tile.cuh"
#include "output.cuh"
#include "spmm.cuh"

// Product of a block-sparse linear layer on CUDA cores, y = x · Bᵀ in float32; B is W, or, by columns, Wᵀ.
//
// Exact order: an output is 0, to which one fused multiply-add for each k is applied, in ascending order of
// the block column and of k within it; for a split row, once for each part, and the parts are added in
// ascending order.

namespace sparsekiln {

/// The main loop's tiles, kRows of them: each block_out × tile_n sums shared out over the threads. A thread's
/// outputs lie block_out / tile_out apart: neighbouring threads read neighbouring rows of W, and store
/// neighbouring outputs. By columns, a thread reads and stores runs of four neighbouring outputs, if it has
/// so many, and its runs lie as far apart.
template <class Config>
struct SimtTile {
  enum : int {
    kOut = Config::tile_out,
    kThreadsOut = Config::block_out / Config::tile_out,
    kThreadsN = Config::threads / kThreadsOut,
    kN = Config::tile_n / kThreadsN,
    kRun = Config::by_columns && kOut % 4 == 0 ? 4 : 1,
    kHolders = Config::threads,
    kRows = Config::rows,
    kPitch = OperandStages<Config>::CopyX::kPitch,
    kPitchW = OperandStages<Config>::CopyW::kPitch,
    /// Quads of k unrolled: as many as keep the loop's body near 512 multiply-adds.
    kUnroll = kN * kOut * 8 > 512 ? 1 : 512 / (kN * kOut * 4),
  };

  enum : bool { kColumnsX = Config::feature_major };
  // Neighbours are threads along what y is contiguous along.
  const int first_out = static_cast<int>(kColumnsX ? threadIdx.x / kThreadsN : threadIdx.x % kThreadsOut);
  const int first_n = static_cast<int>(kColumnsX ? threadIdx.x % kThreadsN : threadIdx.x / kThreadsOut);
  float sums[kRows][kN][kOut];

  __device__ __forceinline__ int n_of(int j) const { return first_n + j * kThreadsN; }
  __device__ __forceinline__ int out_of(int i) const {
    return (first_out + i / kRun * kThreadsOut) * kRun + i % kRun;
  }
  __device__ __forceinline__ float& at(int r, int j, int i) { return sums[r][j][i]; }
  __device__ __forceinline__ float at(int r, int j, int i) const { return sums[r][j][i]; }

  __device__ __forceinline__ SimtTile& gathered() { return *this; }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < kRows * kN * kOut; ++v) sums[v / kOut / kN][v / kOut % kN][v % kOut] = 0;
  }

  /// Adds the products of one chunk to output tile `row`, the same for all threads, in ascending order of k.
  __device__ __forceinline__ void multiply(const OperandStages<Config>& operands, int row) {
    if constexpr (kRows == 1) {
      multiply_into(sums[0], operands);
    } else {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        if (r == row) multiply_into(sums[r], operands);
    }
  }

 private:
  /// Four k's of a batch entry.
  __device__ static __forceinline__ float4 load_input(const float* x, int n, int k) {
    if constexpr (!kColumnsX) return ptx::load_shared(x + n * kPitch + k);
    const float* const column = x + k * kPitch + n;
    return make_float4(column[0], column[kPitch], column[2 * kPitch], column[3 * kPitch]);
  }
  /// Four k's of each output.
  __device__ __forceinline__ void load_weights(float4 (&weight)[kOut], const float* w, int k) const {
#pragma unroll
    for (int i = 0; i < kOut; i += kRun) {
      const float* const column = w + k * kPitchW + out_of(i);  // by columns
      if constexpr (!Config::by_columns) {
        weight[i] = ptx::load_shared(w + out_of(i) * kPitchW + k);
      } else if constexpr (kRun == 1) {
        weight[i] = make_float4(column[0], column[kPitchW], column[2 * kPitchW], column[3 * kPitchW]);
      } else {
        const float4 first = ptx::load_shared(column);
        const float4 second = ptx::load_shared(column + kPitchW);
        const float4 third = ptx::load_shared(column + 2 * kPitchW);
        const float4 fourth = ptx::load_shared(column + 3 * kPitchW);
        weight[i] = make_float4(first.x, second.x, third.x, fourth.x);
        weight[i + 1] = make_float4(first.y, second.y, third.y, fourth.y);
        weight[i + 2] = make_float4(first.z, second.z, third.z, fourth.z);
        weight[i + 3] = make_float4(first.w, second.w, third.w, fourth.w);
      }
    }
  }
  __device__ __forceinline__ void multiply_into(float (&into)[kN][kOut],
                                                const OperandStages<Config>& operands) {
    const float* const x = operands.x();
    const float* const w = operands.w();
#pragma unroll kUnroll
    for (int k = 0; k < Config::chunk; k += 4) {
      float4 weight[kOut];
      load_weights(weight, w, k);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const float4 value = load_input(x, n_of(j), k);
#pragma unroll
        for (int i = 0; i < kOut; ++i) {
          float sum = __fmaf_rn(value.x, weight[i].x, into[j][i]);
          sum = __fmaf_rn(value.y, weight[i].y, sum);
          sum = __fmaf_rn(value.z, weight[i].z, sum);
          into[j][i] = __fmaf_rn(value.w, weight[i].w, sum);
        }
      }
    }
  }
};

/// Config names block_out, block_in, tile_n, tile_out, chunk (k in one stage), stages, threads, async_copy,
/// and what `linear` needs.
template <class Config>
__device__ __forceinline__ void spmm_simt(const float* __restrict__ x, const float* __restrict__ w,
                                          float* __restrict__ y, void* workspace, int n, long long x_stride,
                                          long long y_stride, const Ends<Config>& ends,
                                          typename Config::Table table) {
  linear<Config, OperandStages<Config>, SimtTile<Config>>(x, w, y, workspace, n, x_stride, y_stride, ends,
                                                          table);
}

}  // namespace sparsekiln
