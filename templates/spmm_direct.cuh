#pragma once

#include "load_direct.cuh"
#include "output.cuh"
#include "product.cuh"
#include "spmm.cuh"
#include "warp_sums.cuh"

// SpMM for small batches on tensor cores, y = x · Bᵀ, where B is W, or Wᵀ if blocks are read by columns,
// accumulated in float32, or of 8-bit integers in int32, without shared memory or a barrier in the main loop:
// a warp loads fragments of both operands from global memory into the registers in which they are multiplied.
// Many warps hide what each of them waits for.
//
// Order of summation: each warp adds its chunks in ascending order, each in the order of the hardware. Then
// the warps are added in ascending order, and then the parts of a split row.

namespace sparsekiln {

/// The accumulators of one warp, of chunks in registers.
template <class Config>
struct DirectTile : WarpSums<Config, DirectOperands<Config>> {
  using Sums = WarpSums<Config, DirectOperands<Config>>;
  using Product = typename Config::Product;
  using Sums::accumulators;
  using Sums::kA;
  using Sums::kB;
  using Sums::kWeightA;

  /// A chunk is two k-steps: words 0 and 1 of each lane belong to the first, words 2 and 3 to the second.
  template <class Chunk>
  __device__ __forceinline__ void multiply(const Chunk& chunk, int) {
    step<false>(chunk);
    step<true>(chunk);
  }

 private:
  template <bool kSecond, class Chunk>
  __device__ __forceinline__ void step(const Chunk& chunk) {
#pragma unroll
    for (int i = 0; i < kA; ++i) {
      const unsigned a[4] = {
          word<kSecond, 0, kWeightA>(chunk, 2 * i), word<kSecond, 0, kWeightA>(chunk, 2 * i + 1),
          word<kSecond, 1, kWeightA>(chunk, 2 * i), word<kSecond, 1, kWeightA>(chunk, 2 * i + 1)};
#pragma unroll
      for (int j = 0; j < kB; ++j) {
        const unsigned b[2] = {word<kSecond, 0, !kWeightA>(chunk, j), word<kSecond, 1, !kWeightA>(chunk, j)};
        Product::mma(accumulators[i][j], a, b);
      }
    }
  }
  template <bool kSecond, int kWord, bool kOfWeight, class Chunk>
  __device__ static __forceinline__ unsigned word(const Chunk& chunk, int unit) {
    enum : int { kPlace = (kSecond ? 2 : 0) + kWord };
    return Product::convert(kOfWeight ? chunk.w(unit, kPlace) : chunk.x(unit, kPlace));
  }
};

/// The operands are taken in turns.
template <class Config>
struct ChunksHeld<DirectOperands<Config>> {
  enum : int { kHeld = Config::stages };
};

/// Config names block_in, stages (chunks of a warp under way, 1 or 2), warps, shared_bytes (dynamic shared
/// memory of a CTA), run (consecutive outputs that a thread stores), weight_a (the rows of W are A), warp_out
/// (outputs of a block that a warp computes), the Product, and what `spmm` needs.
template <class Config>
__device__ __forceinline__ void spmm_direct(const typename Config::Element* x,
                                            const typename Config::Element* w,
                                            typename Config::Output::Element* y, void* workspace, int n,
                                            long long x_stride, long long y_stride,
                                            const EpilogueArguments<Config>& epilogue,
                                            typename Config::Table table) {
  spmm<Config, DirectOperands<Config>, DirectTile<Config>>(x, w, y, workspace, n, x_stride, y_stride,
                                                           epilogue, table);
}

}  // namespace sparsekiln
