#pragma once

#include "load_tile.cuh"
#include "output.cuh"
#include "spmm.cuh"

// SpMM on CUDA cores, in float32, or of 8-bit integers in int32: y = x · Bᵀ, where B is W, or Wᵀ if blocks
// are read by columns.
//
// Exact order: an output is 0, to which one fused multiply-add for each k is applied, in ascending order of
// the block column and of k within it. For a split row, that holds for each part, and the parts are added in
// ascending order.

namespace sparsekiln {

/// The output tiles of the main loop, kRows of them. Each has block_out × tile_n accumulators, distributed
/// over the threads. The outputs of a thread are block_out / tile_out apart, so that neighboring threads read
/// neighboring rows of W and store neighboring outputs. By columns, a thread reads and stores runs of four
/// consecutive outputs, if it has so many, with the same distance between its runs.
template <class Config>
struct SimtTile {
  using Place = ItemPlace<Config>;
  using Product = typename Config::Product;
  using Sum = typename Product::Sum;
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
    /// How many quads of k are unrolled: as many as keep the loop's body near 512 multiply-adds.
    kUnroll = kN * kOut * 8 > 512 ? 1 : 512 / (kN * kOut * 4),
  };

  enum : bool { kColumnsX = Config::feature_major };
  // Neighboring threads follow the dimension in which y is contiguous.
  const int first_out = static_cast<int>(kColumnsX ? threadIdx.x / kThreadsN : threadIdx.x % kThreadsOut);
  const int first_n = static_cast<int>(kColumnsX ? threadIdx.x % kThreadsN : threadIdx.x / kThreadsOut);
  // Byte offsets of what it reads first.
  const unsigned place_x = ptx::kept(static_cast<unsigned>(first_n * (kColumnsX ? 4 : kPitch * 4)));
  const unsigned place_w =
      ptx::kept(static_cast<unsigned>(first_out * (Config::by_columns ? kRun * 4 : kPitchW * 4)));
  Sum accumulators[kRows][kN][kOut];

  __device__ __forceinline__ int n_of(int j) const { return first_n + j * kThreadsN; }
  __device__ __forceinline__ int out_of(int i) const {
    return (first_out + i / kRun * kThreadsOut) * kRun + i % kRun;
  }
  __device__ __forceinline__ Sum& at(int r, int j, int i) { return accumulators[r][j][i]; }
  __device__ __forceinline__ Sum at(int r, int j, int i) const { return accumulators[r][j][i]; }

  __device__ __forceinline__ SimtTile& gathered() { return *this; }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < kRows * kN * kOut; ++v) accumulators[v / kOut / kN][v / kOut % kN][v % kOut] = 0;
  }

  /// Adds the products of one chunk to output tile `row`, the same for all threads, in ascending order of k.
  __device__ __forceinline__ void multiply(const OperandStages<Config>& operands, int row) {
    if constexpr (kRows == 1) {
      multiply_into(accumulators[0], operands);
    } else {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        if (r == row) multiply_into(accumulators[r], operands);
    }
  }

 private:
  /// A word each of four rows of a tile.
  template <int kPitchOfTile>
  __device__ static __forceinline__ float4 load_column(unsigned first) {
    float words[4][1];
#pragma unroll
    for (int v = 0; v < 4; ++v) ptx::load_shared(words[v], first + v * kPitchOfTile * 4);
    return make_float4(words[0][0], words[1][0], words[2][0], words[3][0]);
  }
  /// Four k's of the thread's j-th batch row. `x` is where its first one has them.
  __device__ static __forceinline__ float4 load_input(unsigned x, int j) {
    if constexpr (kColumnsX)
      return load_column<kPitch>(x + j * kThreadsN * 4);
    else
      return ptx::load_shared(x + j * kThreadsN * kPitch * 4);
  }
  /// Four k's of each output. `w` is where the thread's first one has them.
  __device__ __forceinline__ void load_weights(float4 (&weight)[kOut], unsigned w) const {
#pragma unroll
    for (int i = 0; i < kOut; i += kRun) {
      if constexpr (!Config::by_columns) {
        weight[i] = ptx::load_shared(w + i * kThreadsOut * kPitchW * 4);
      } else if constexpr (kRun == 1) {
        weight[i] = load_column<kPitchW>(w + i * kThreadsOut * 4);
      } else {
        const unsigned column = w + i * kThreadsOut * 4;
        const float4 first = ptx::load_shared(column);
        const float4 second = ptx::load_shared(column + kPitchW * 4);
        const float4 third = ptx::load_shared(column + 2 * kPitchW * 4);
        const float4 fourth = ptx::load_shared(column + 3 * kPitchW * 4);
        weight[i] = make_float4(first.x, second.x, third.x, fourth.x);
        weight[i + 1] = make_float4(first.y, second.y, third.y, fourth.y);
        weight[i + 2] = make_float4(first.z, second.z, third.z, fourth.z);
        weight[i + 3] = make_float4(first.w, second.w, third.w, fourth.w);
      }
    }
  }
  __device__ __forceinline__ void multiply_into(Sum (&into)[kN][kOut],
                                                const OperandStages<Config>& operands) {
    const unsigned x = operands.x() + place_x;
    const unsigned w = operands.w() + place_w;
#pragma unroll kUnroll
    for (int k = 0; k < Config::chunk; k += 4) {
      float4 weight[kOut];
      load_weights(weight, w + k * (Config::by_columns ? kPitchW * 4 : 4));
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const float4 value = load_input(x + k * (kColumnsX ? kPitch * 4 : 4), j);
#pragma unroll
        for (int i = 0; i < kOut; ++i) {
          Sum sum = Product::multiply_add(value.x, weight[i].x, into[j][i]);
          sum = Product::multiply_add(value.y, weight[i].y, sum);
          sum = Product::multiply_add(value.z, weight[i].z, sum);
          into[j][i] = Product::multiply_add(value.w, weight[i].w, sum);
        }
      }
    }
  }
};

/// Config names block_out, block_in, tile_n, tile_out, chunk (k in one stage), stages, threads, async_copy,
/// the Product, and what `spmm` needs.
template <class Config>
__device__ __forceinline__ void spmm_simt(const typename Config::Element* x,
                                          const typename Config::Element* w,
                                          typename Config::Output::Element* y, void* workspace, int n,
                                          long long x_stride, long long y_stride,
                                          const EpilogueArguments<Config>& epilogue,
                                          typename Config::Table table) {
  spmm<Config, OperandStages<Config>, SimtTile<Config>>(x, w, y, workspace, n, x_stride, y_stride, epilogue,
                                                        table);
}

}  // namespace sparsekiln
