#pragma once

#include "linear.cuh"
#include "load_swizzled.cuh"
#include "output.cuh"
#include "product.cuh"

// Forward product of a block-sparse linear layer on tensor cores, y = x · Wᵀ, summed in float32.
//
// x and W are both contiguous along k, as mma.sync wants its A rows and B columns. Which of them is A (16
// rows a tile) and which B (8 columns) is the config's choice. A k-step is 32 bytes of each row: 16 elements
// of 16 bits, or 8 floats. The order of summation is the hardware's within a k-step and ascending over
// k-steps; the parts of a split row are added in ascending order.

namespace sparsekiln {

/// The main loop's tiles, kRows of them: each block_out · merge × tile_n sums, a grid of warps over it, and
/// in each warp a grid of kA × kB tensor-core tiles (16 × 8).
template <class Config>
struct MmaTile {
  using Product = typename Config::Product;
  using Rows = Swizzle<Config::chunk_units>;
  enum : bool { kWeightA = Config::weight_a };
  enum : int {
    kWarpsA = kWeightA ? Config::warps_out : Config::warps_n,
    kWarpsB = kWeightA ? Config::warps_n : Config::warps_out,
    kOutputs = Config::block_out * Config::merge,
    kA = (kWeightA ? kOutputs : Config::tile_n) / (16 * kWarpsA),
    kB = (kWeightA ? Config::tile_n : kOutputs) / (8 * kWarpsB),
    kRowBytes = Config::chunk_units * 16,
    kSteps = Config::chunk_units / 2,
    kRows = Config::rows,
    kN = kWeightA ? 2 * kB : 2 * kA,
    kOut = kWeightA ? 2 * kA : 2 * kB,
    kRun = Config::run,
    kHolders = Config::threads,
  };

  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp_a = static_cast<int>(threadIdx.x / 32 % kWarpsA);
  const int warp_b = static_cast<int>(threadIdx.x / 32 / kWarpsA);
  /// Where this lane's rows of the first k-step lie for ldmatrix. Of A, matrices 0 and 1 are rows 0 to 7 and
  /// 8 to 15 of its first unit, 2 and 3 of its second; of B, 0 and 1 are both units of columns 0 to 7, 2 and
  /// 3 those of columns 8 to 15.
  const unsigned a_place = kept_place(warp_a * kA * 16 + lane % 16, lane / 16);
  const unsigned b_place =
      kept_place(warp_b * kB * 8 + lane % 8 + (kB > 1 ? lane / 16 * 8 : 0), lane / 8 % 2);
  float sums[kRows][kA][kB][4];

  __device__ __forceinline__ int n_of(int j) const {
    if constexpr (kWeightA) return (warp_b * kB + j / 2) * 8 + lane % 4 * 2 + j % 2;
    return (warp_a * kA + j / 2) * 16 + j % 2 * 8 + lane / 4;
  }
  /// As RowOrder puts them.
  __device__ __forceinline__ int out_of(int i) const {
    if constexpr (kWeightA) return warp_a * kA * 16 + i / kRun * (kRun * 8) + lane / 4 * kRun + i % kRun;
    return warp_b * kB * 8 + i / kRun * (kRun * 4) + lane % 4 * kRun + i % kRun;
  }
  __device__ __forceinline__ float& at(int r, int j, int i) {
    return kWeightA ? sums[r][i / 2][j / 2][i % 2 * 2 + j % 2] : sums[r][j / 2][i / 2][j % 2 * 2 + i % 2];
  }
  __device__ __forceinline__ float at(int r, int j, int i) const {
    return const_cast<MmaTile*>(this)->at(r, j, i);
  }

  __device__ __forceinline__ MmaTile& gathered() { return *this; }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < kRows * kA * kB * 4; ++v)
      sums[v / 4 / kB / kA][v / 4 / kB % kA][v / 4 % kB][v % 4] = 0;
  }

  /// Adds the products of one chunk to output tile `row`, which is the same for all threads: each has its
  /// code, since registers have no index.
  __device__ __forceinline__ void multiply(SwizzledStages<Config>& operands, int row) {
    if constexpr (kRows == 1) {
      multiply_into(sums[0], operands);
    } else {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        if (r == row) multiply_into(sums[r], operands);
    }
  }

 private:
  __device__ static __forceinline__ unsigned kept_place(int row, int unit) {
    return ptx::kept(static_cast<unsigned>(Rows::offset(row, unit)));
  }
  __device__ __forceinline__ void multiply_into(float (&into)[kA][kB][4], SwizzledStages<Config>& operands) {
    multiply_steps<0>(into, operands, ptx::kept((kWeightA ? operands.w() : operands.x()) + a_place),
                      ptx::kept((kWeightA ? operands.x() : operands.w()) + b_place));
  }
  template <int kStep>
  __device__ __forceinline__ void multiply_steps(float (&into)[kA][kB][4], SwizzledStages<Config>& operands,
                                                 unsigned a_rows, unsigned b_rows) {
    enum : int {
      kX = SwizzledStages<Config>::kX,
      kFirstA = kWeightA ? 0 : kX,
      kFirstB = kWeightA ? kX : 0,
    };
    unsigned a[kA][4];
    unsigned b[kB][2];
    load_a<kFirstA, 0>(a, Rows::ahead(a_rows, kStep));
    load_b<kFirstB, 0>(b, Rows::ahead(b_rows, kStep));
    if constexpr (kStep == 0) operands.queue_ahead();
#pragma unroll
    for (int j = 0; j < kB; ++j)
#pragma unroll
      for (int i = 0; i < kA; ++i) Product::mma(into[i][j], a[i], b[j]);
    if constexpr (kStep + 1 < kSteps) multiply_steps<kStep + 1>(into, operands, a_rows, b_rows);
  }
  template <int kFirst, int kTile>
  __device__ static __forceinline__ void load_a(unsigned (&a)[kA][4], unsigned shared) {
    ptx::load_matrices<kFirst + kTile * (16 * kRowBytes)>(a[kTile], shared);
#pragma unroll
    for (int v = 0; v < 4; ++v) a[kTile][v] = Product::convert(a[kTile][v]);
    if constexpr (kTile + 1 < kA) load_a<kFirst, kTile + 1>(a, shared);
  }
  template <int kFirst, int kTile>
  __device__ static __forceinline__ void load_b(unsigned (&b)[kB][2], unsigned shared) {
    if constexpr (kTile + 1 < kB) {
      unsigned words[4];
      ptx::load_matrices<kFirst + kTile * (8 * kRowBytes)>(words, shared);
#pragma unroll
      for (int v = 0; v < 4; ++v) b[kTile + v / 2][v % 2] = Product::convert(words[v]);
    } else {
      unsigned words[2];
      ptx::load_matrices<kFirst + kTile * (8 * kRowBytes)>(words, shared);
      b[kTile][0] = Product::convert(words[0]);
      b[kTile][1] = Product::convert(words[1]);
    }
    if constexpr (kTile + 2 < kB) load_b<kFirst, kTile + 2>(b, shared);
  }
};

/// Config names block_in, chunk_units (16 bytes of k each, of one stage's rows), stages, warps_out × warps_n,
/// weight_a (W's rows are A), run (neighbouring outputs of a thread), async_copy, the Product, and what
/// `linear` needs.
template <class Config>
__device__ __forceinline__ void linear_mma(const typename Config::Element* __restrict__ x,
                                           const typename Config::Element* __restrict__ w,
                                           typename Config::Output::Element* __restrict__ y, void* workspace,
                                           int n, long long x_stride, long long y_stride,
                                           const Ends<Config>& ends, typename Config::Table table) {
  linear<Config, SwizzledStages<Config>, MmaTile<Config>>(x, w, y, workspace, n, x_stride, y_stride, ends, table);
}

}  // namespace sparsekiln
