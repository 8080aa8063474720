#pragma once

#include "load_warp.cuh"
#include "output.cuh"
#include "product.cuh"
#include "spmm.cuh"
#include "warp_sums.cuh"

// SpMM for small batches, y = x · Wᵀ, accumulated in float32. The weight is read once, at full width, by
// warps that share the blocks of an item and add their accumulators at its end.
//
// Order of summation: each warp adds its chunks in ascending order. On tensor cores, the order within a chunk
// is that of the hardware. On CUDA cores, four lanes share a row of a chunk; each adds its 16 bytes by one
// fused multiply-add for each k in ascending order, and their sums are added as (0 + 1) + (2 + 3). Then the
// warps are added in ascending order, and then the parts of a split row.

namespace sparsekiln {

/// The accumulators of one warp on tensor cores, of chunks in shared memory.
template <class Config>
struct WarpMmaTile : WarpSums<Config, WarpStages<Config>> {
  using Sums = WarpSums<Config, WarpStages<Config>>;
  using Product = typename Config::Product;
  using Stages = WarpStages<Config>;
  using Sums::accumulators;
  using Sums::kA;
  using Sums::kB;
  using Sums::kWeightA;

  /// A chunk is two k-steps: words 0 and 1 of each lane belong to the first, words 2 and 3 to the second.
  __device__ __forceinline__ void multiply(const Stages& operands, int) {
    const unsigned own = threadIdx.x % 32 * 16;
    unsigned b[kB][4];
    load<0>(b, (kWeightA ? operands.x() : operands.w()) + own);
    multiply_rows<0>(b, (kWeightA ? operands.w() : operands.x()) + own);
  }

 private:
  template <int kUnit, int kUnits>
  __device__ static __forceinline__ void load(unsigned (&words)[kUnits][4], unsigned shared) {
    ptx::load_shared<kUnit * Stages::kUnitBytes>(words[kUnit], shared);
#pragma unroll
    for (int v = 0; v < 4; ++v) words[kUnit][v] = Product::convert(words[kUnit][v]);
    if constexpr (kUnit + 1 < kUnits) load<kUnit + 1>(words, shared);
  }
  template <int kTile>
  __device__ __forceinline__ void multiply_rows(const unsigned (&b)[kB][4], unsigned shared) {
    unsigned rows[2][4];  // the upper eight and the lower eight
    load<0>(rows, shared + kTile * 2 * Stages::kUnitBytes);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned a[4] = {rows[0][2 * half], rows[1][2 * half], rows[0][2 * half + 1],
                             rows[1][2 * half + 1]};
#pragma unroll
      for (int j = 0; j < kB; ++j) {
        const unsigned column[2] = {b[j][2 * half], b[j][2 * half + 1]};
        Product::mma(accumulators[kTile][j], a, column);
      }
    }
    if constexpr (kTile + 1 < kA) multiply_rows<kTile + 1>(b, shared);
  }
};

/// The accumulators of one warp on CUDA cores. In each unit of W, a lane has a quarter of its row.
template <class Config>
struct WarpSimtTile {
  using Place = KnownItemPlace<Config>;
  using Stages = WarpStages<Config>;
  using Reduction = WarpReduction<Config, Stages, float>;
  enum : int { kUnits = Stages::kUnitsW, kN = Config::tile_n };
  float accumulators[kUnits][kN];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < kUnits * kN; ++v) accumulators[v / kN][v % kN] = 0;
  }
  __device__ __forceinline__ void multiply(const Stages& operands, int) {
    float x[kN][4];
    load<0>(x, operands.x() + threadIdx.x % 4 * 16);
    multiply_units<0>(x, operands.w() + threadIdx.x % 32 * 16);
  }
  __device__ __forceinline__ GatheredTile<Config, float> gathered() {
    __syncthreads();  // all threads have read the item before
    const int lane = static_cast<int>(threadIdx.x % 32);
    const unsigned first = Reduction::place(static_cast<int>(threadIdx.x / 32), 0, lane / 4);
    put<0>(first, lane % 4);
    __syncthreads();
    return Reduction::sum();
  }

 private:
  template <int kBatchRow>
  __device__ static __forceinline__ void load(float (&x)[kN][4], unsigned shared) {
    ptx::load_shared<kBatchRow * 64>(x[kBatchRow], shared);
    if constexpr (kBatchRow + 1 < kN) load<kBatchRow + 1>(x, shared);
  }
  template <int kUnit>
  __device__ __forceinline__ void multiply_units(const float (&x)[kN][4], unsigned shared) {
    float w[4];
    ptx::load_shared<kUnit * Stages::kUnitBytes>(w, shared);
#pragma unroll
    for (int v = 0; v < 4; ++v)
#pragma unroll
      for (int n = 0; n < kN; ++n) accumulators[kUnit][n] = __fmaf_rn(x[n][v], w[v], accumulators[kUnit][n]);
    if constexpr (kUnit + 1 < kUnits) multiply_units<kUnit + 1>(x, shared);
  }
  template <int kValue>
  __device__ __forceinline__ void put(unsigned first, int quarter) const {
    enum : int { kUnit = kValue / kN, kBatchRow = kValue % kN };
    float total = accumulators[kUnit][kBatchRow];
    total += __shfl_xor_sync(0xffffffff, total, 1);
    total += __shfl_xor_sync(0xffffffff, total, 2);
    if (quarter == kBatchRow % 4) ptx::store_shared<kBatchRow * Reduction::kPitch + kUnit * 32>(first, total);
    if constexpr (kValue + 1 < kUnits * kN) put<kValue + 1>(first, quarter);
  }
};

template <class Config, bool kTensorCores>
struct WarpTile {
  using Type = WarpSimtTile<Config>;
};
template <class Config>
struct WarpTile<Config, true> {
  using Type = WarpMmaTile<Config>;
};

/// Config names block_in, stages, warps, shared_bytes (dynamic shared memory of a CTA), run (consecutive
/// outputs that a thread stores), async_copy, tensor_cores and for them weight_a (the rows of W are A) and
/// the Product, warp_out (outputs of a block that a warp computes), and what `spmm` needs.
template <class Config>
__device__ __forceinline__ void spmm_stream(const typename Config::Element* x,
                                            const typename Config::Element* w,
                                            typename Config::Output::Element* y, void* workspace, int n,
                                            long long x_stride, long long y_stride,
                                            const EpilogueArguments<Config>& epilogue,
                                            typename Config::Table table) {
  using Tile = typename WarpTile<Config, Config::tensor_cores>::Type;
  spmm<Config, WarpStages<Config>, Tile>(x, w, y, workspace, n, x_stride, y_stride, epilogue, table);
}

}  // namespace sparsekiln
