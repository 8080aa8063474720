#pragma once

#include "load_fragments.cuh"
#include "load_swizzled.cuh"
#include "output.cuh"
#include "product.cuh"
#include "spmm.cuh"

// SpMM on tensor cores, accumulated in float32, or of 8-bit integers in int32: y = x · Bᵀ, where B is W, or
// Wᵀ if blocks are read by columns.
//
// mma.sync expects rows of A and columns of B that are contiguous along k. x and W usually are. Where x is
// feature-major or W is read by columns, fragments are transposed when they are read from shared memory. The
// config decides which of the two is A (16 rows per tile) and which is B (8 columns). A k-step is 32 bytes of
// each row: 32 elements of 8 bits, 16 of 16 bits, or 8 floats. Products are summed in the hardware's order
// within a k-step and in ascending order of k-steps; the parts of a split row are added in ascending order.

namespace sparsekiln {

/// The output tiles of the main loop, kRows of them. Each has block_out · merge × tile_n accumulators,
/// distributed over a grid of warps; each warp has a grid of kA × kB tensor-core tiles (16 × 8).
template <class Config>
struct MmaTile {
  using Place = ItemPlace<Config>;
  using Stages = SwizzledStages<Config>;
  using Product = typename Stages::Product;
  using Sum = typename Product::Sum;
  enum : bool {
    kWeightA = Config::weight_a,
    kColumnsW = Config::by_columns,
    kColumnsX = Config::feature_major,
    kFloats = sizeof(typename Product::Element) == 4,
  };
  enum : int {
    kWarpsA = kWeightA ? Config::warps_out : Config::warps_n,
    kWarpsB = kWeightA ? Config::warps_n : Config::warps_out,
    kOutputs = Config::block_out * Config::merge,
    kA = (kWeightA ? kOutputs : Config::tile_n) / (16 * kWarpsA),
    kB = (kWeightA ? Config::tile_n : kOutputs) / (8 * kWarpsB),
    kSteps = Config::chunk_units / 2,
    kRows = Config::rows,
    kN = kWeightA ? 2 * kB : 2 * kA,
    kOut = kWeightA ? 2 * kA : 2 * kB,
    kRun = Config::interleave,
    kHolders = Config::threads,
  };
  enum : bool {
    kColumnsA = kWeightA ? kColumnsW : kColumnsX,
    kColumnsB = kWeightA ? kColumnsX : kColumnsW,
    /// Whether the columns of two tiles of B alternate, and the rows of the two halves of a tile of A:
    /// ColumnFragments reads floats in that order.
    kAlternateB = kColumnsB && kFloats && kB > 1,
    kAlternateA = kColumnsA && kFloats,
    /// Whether lanes exchange halves of two tiles of B, or of the halves of one tile of A, where W is not
    /// reordered. Each lane then has enough consecutive outputs to write whole sectors.
    kExchanges = kColumnsW && !kFloats && kRun == (kWeightA ? 2 : 4),
  };
  template <bool kColumns, int kWide, int kTiles, bool kA>
  using Fragments = typename Select<kColumns, ColumnFragments<Product, kWide, kTiles*(kA ? 16 : 8), kA>,
                                    RowFragments<Product, Config::chunk_units, kTiles>>::Type;
  using FragmentsA = Fragments<kColumnsA, kWeightA ? int{kOutputs} : int{Config::tile_n}, kA, true>;
  using FragmentsB = Fragments<kColumnsB, kWeightA ? int{Config::tile_n} : int{kOutputs}, kB, false>;

  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp_a = static_cast<int>(threadIdx.x / 32 % kWarpsA);
  const int warp_b = static_cast<int>(threadIdx.x / 32 / kWarpsA);
  /// Offsets of this lane's fragments of the first k-step.
  const unsigned a_place = ptx::kept(FragmentsA::place_a(warp_a * kA * 16, lane));
  const unsigned b_place = ptx::kept(FragmentsB::place_b(warp_b * kB * 8, lane));
  Sum accumulators[kRows][kA][kB][4];

  __device__ __forceinline__ int n_of(int j) const {
    if constexpr (kWeightA && kAlternateB) return warp_b * kB * 8 + j / 4 * 16 + lane % 4 * 4 + j % 4;
    if constexpr (kWeightA) return (warp_b * kB + j / 2) * 8 + lane % 4 * 2 + j % 2;
    const int tile = (warp_a * kA + j / 2) * 16;
    return tile + (kAlternateA ? lane / 4 * 2 + j % 2 : j % 2 * 8 + lane / 4);
  }
  /// The order is that of RowOrder, or that in which ColumnFragments reads.
  __device__ __forceinline__ int out_of(int i) const {
    enum : int { kLanes = kWeightA ? 8 : 4 };
    const int first = kWeightA ? warp_a * kA * 16 : warp_b * kB * 8;
    const int own = kWeightA ? lane / 4 : lane % 4;
    const int run = first + i / kRun * (kRun * kLanes) + i % kRun;
    if constexpr (kExchanges) return run + own % 2 * 8 + own / 2 * kRun;
    return run + own * kRun;
  }
  __device__ __forceinline__ Sum& at(int r, int j, int i) {
    if constexpr (kWeightA) return accumulators[r][i / 2][tile_b(j)][i % 2 * 2 + half_b(j)];
    return accumulators[r][j / 2][tile_b(i)][j % 2 * 2 + half_b(i)];
  }
  __device__ __forceinline__ Sum at(int r, int j, int i) const {
    return const_cast<MmaTile*>(this)->at(r, j, i);
  }

  __device__ __forceinline__ MmaTile& gathered() {
    if constexpr (kExchanges) {
#pragma unroll
      for (int v = 0; v < kRows * kN * kOut; ++v) {
        const int i = v % kOut;
        if (i % kRun < kRun / 2)
          exchange(at(v / kOut / kN, v / kOut % kN, i), at(v / kOut / kN, v / kOut % kN, i + kRun / 2));
      }
    }
    return *this;
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < kRows * kA * kB * 4; ++v)
      accumulators[v / 4 / kB / kA][v / 4 / kB % kA][v / 4 % kB][v % 4] = 0;
  }

  /// Adds the products of one chunk to output tile `row`, which is the same for all threads. Each tile has
  /// its own code, since registers cannot be indexed.
  __device__ __forceinline__ void multiply(Stages& operands, int row) {
    if constexpr (kRows == 1) {
      multiply_into(accumulators[0], operands);
    } else {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        if (r == row) multiply_into(accumulators[r], operands);
    }
  }

 private:
  // The tile of B that the lane's i-th value belongs to, and which of the lane's two columns it is.
  __device__ static __forceinline__ int tile_b(int i) { return kAlternateB ? i / 4 * 2 + i % 2 : i / 2; }
  __device__ static __forceinline__ int half_b(int i) { return kAlternateB ? i / 2 % 2 : i % 2; }

  /// Exchanges values between two lanes that are neighbors along the outputs. The first lane keeps `first`
  /// and receives the `first` of the other, whose outputs follow; the other lane keeps `second` and receives
  /// the `second` of the first lane.
  __device__ __forceinline__ void exchange(float& first, float& second) const {
    const bool keeps_second = (kWeightA ? lane / 4 : lane) % 2 != 0;
    const float got = ptx::exchanged<(kWeightA ? 4 : 1)>(keeps_second ? first : second);
    first = keeps_second ? got : first;
    second = keeps_second ? second : got;
  }
  __device__ __forceinline__ void multiply_into(Sum (&into)[kA][kB][4], Stages& operands) {
    multiply_steps<0>(into, operands, ptx::kept((kWeightA ? operands.w() : operands.x()) + a_place),
                      ptx::kept((kWeightA ? operands.x() : operands.w()) + b_place));
  }
  template <int kStep>
  __device__ __forceinline__ void multiply_steps(Sum (&into)[kA][kB][4], Stages& operands, unsigned a_first,
                                                 unsigned b_first) {
    enum : int {
      kX = Stages::kX,
      kFirstA = kWeightA ? 0 : kX,
      kFirstB = kWeightA ? kX : 0,
    };
    unsigned a[kA][4];
    unsigned b[kB][2];
    FragmentsA::template load_a<kFirstA, kStep>(a, a_first);
    FragmentsB::template load_b<kFirstB, kStep>(b, b_first);
    if constexpr (kStep == 0) operands.queue_ahead();
#pragma unroll
    for (int j = 0; j < kB; ++j)
#pragma unroll
      for (int i = 0; i < kA; ++i) Product::mma(into[i][j], a[i], b[j]);
    if constexpr (kStep + 1 < kSteps) multiply_steps<kStep + 1>(into, operands, a_first, b_first);
  }
};

/// Config names block_in, chunk_units (units of 16 bytes of k in a row of a stage), stages, warps_out ×
/// warps_n, weight_a (the rows of W are A), interleave (consecutive outputs of a thread), async_copy, the
/// Product, and what `spmm` needs.
template <class Config>
__device__ __forceinline__ void spmm_mma(const typename Config::Element* x, const typename Config::Element* w,
                                         typename Config::Output::Element* y, void* workspace, int n,
                                         long long x_stride, long long y_stride,
                                         const EpilogueArguments<Config>& epilogue,
                                         typename Config::Table table) {
  spmm<Config, SwizzledStages<Config>, MmaTile<Config>>(x, w, y, workspace, n, x_stride, y_stride, epilogue,
                                                        table);
}

}  // namespace sparsekiln
