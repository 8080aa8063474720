#pragma once

#include "load_warp.cuh"
#include "output.cuh"
#include "product.cuh"
#include "spmm.cuh"

// SpMM for small batches, y = x · Wᵀ, accumulated in float32. The weight is read once, at full width, by
// warps that share the blocks of an item and add their accumulators at its end.
//
// Order of summation: each warp adds its chunks in ascending order. On tensor cores, the order within a chunk
// is that of the hardware. On CUDA cores, four lanes share a row of a chunk; each adds its 16 bytes by one
// fused multiply-add for each k in ascending order, and their sums are added as (0 + 1) + (2 + 3). Then the
// warps are added in ascending order, and then the parts of a split row.

namespace sparsekiln {

/// The sums of an item over all warps, distributed over the threads: kRun consecutive outputs per thread.
template <class Config>
struct GatheredTile {
  enum : int {
    kRun = Config::run,
    kRows = 1,
    kRuns = Config::block_out / kRun,
    kLine = Config::threads < kRuns ? Config::threads : kRuns,  ///< threads along the outputs
    kLines = Config::threads / kLine < Config::tile_n ? Config::threads / kLine : Config::tile_n,
    kHolders = kLine * kLines,
    kOut = Config::block_out / kLine,
    kN = Config::tile_n / kLines,
  };
  float accumulators[kN][kOut];

  __device__ __forceinline__ int n_of(int j) const {
    const int thread = static_cast<int>(threadIdx.x);
    if (kHolders < Config::threads && thread >= kHolders) return 0x7fffffff;
    return thread / kLine + j * kLines;
  }
  __device__ __forceinline__ int out_of(int i) const {
    return (i / kRun * kLine + static_cast<int>(threadIdx.x) % kLine) * kRun + i % kRun;
  }
  __device__ __forceinline__ float& at(int, int j, int i) { return accumulators[j][i]; }
  __device__ __forceinline__ float at(int, int j, int i) const { return accumulators[j][i]; }
};

/// The shared memory in which warps add their accumulators. It follows the stages and has, for each warp,
/// tile_n rows of block_out floats and four more, so that the lanes of a fragment meet no bank conflict where
/// W is A.
template <class Config>
struct WarpReduction {
  enum : int {
    kPitch = (Config::block_out + 4) * 4,
    kWarpBytes = Config::tile_n * kPitch,
    kFirst = Config::warps * WarpStages<Config>::kWarpBytes,
  };
  static_assert(kFirst + Config::warps * kWarpBytes == Config::shared_bytes, "as the launch gives");
  __device__ static __forceinline__ unsigned place(int warp, int n, int out) {
    return ptx::dynamic_shared() + kFirst + warp * kWarpBytes + n * kPitch + out * 4;
  }
  /// Adds what all warps have written. The caller calls the barrier in between.
  __device__ static __forceinline__ GatheredTile<Config> sum() {
    using Tile = GatheredTile<Config>;
    Tile tile{};
    if (Tile::kHolders < Config::threads && static_cast<int>(threadIdx.x) >= Tile::kHolders) return tile;
#pragma unroll
    for (int j = 0; j < Tile::kN; ++j)
#pragma unroll
      for (int i = 0; i < Tile::kOut; i += Tile::kRun) {
        const unsigned first = place(0, tile.n_of(j), tile.out_of(i));
        float total[Tile::kRun];
        ptx::load_shared(total, first);
#pragma unroll
        for (int warp = 1; warp < Config::warps; ++warp) {
          float next[Tile::kRun];
          ptx::load_shared(next, first + warp * kWarpBytes);
#pragma unroll
          for (int v = 0; v < Tile::kRun; ++v) total[v] += next[v];
        }
#pragma unroll
        for (int v = 0; v < Tile::kRun; ++v) tile.accumulators[j][i + v] = total[v];
      }
    return tile;
  }
};

/// The accumulators of one warp on tensor cores, kA × kB tiles of 16 × 8.
template <class Config>
struct WarpMmaTile {
  using Product = typename Config::Product;
  using Stages = WarpStages<Config>;
  enum : bool { kWeightA = Config::weight_a };
  enum : int {
    kA = (kWeightA ? Config::block_out : Config::tile_n) / 16,
    kB = (kWeightA ? Config::tile_n : Config::block_out) / 8,
  };
  float accumulators[kA][kB][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < kA * kB * 4; ++v) accumulators[v / 4 / kB][v / 4 % kB][v % 4] = 0;
  }
  /// A chunk is two k-steps: words 0 and 1 of each lane belong to the first, words 2 and 3 to the second.
  __device__ __forceinline__ void multiply(const Stages& operands, int) {
    const unsigned own = threadIdx.x % 32 * 16;
    unsigned b[kB][4];
    load<0>(b, (kWeightA ? operands.x() : operands.w()) + own);
    multiply_rows<0>(b, (kWeightA ? operands.w() : operands.x()) + own);
  }
  __device__ __forceinline__ GatheredTile<Config> gathered() {
    __syncthreads();  // all threads have read the item before
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int row = lane / 4;         // row within the upper eight of a tile
    const int column = lane % 4 * 2;  // column within the eight of a tile
    const unsigned first =
        kWeightA ? WarpReduction<Config>::place(static_cast<int>(threadIdx.x / 32), column, row)
                 : WarpReduction<Config>::place(static_cast<int>(threadIdx.x / 32), row, column);
    put<0>(first);
    __syncthreads();
    return WarpReduction<Config>::sum();
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
  template <int kValue>
  __device__ __forceinline__ void put(unsigned first) const {
    enum : int {
      kRow = kValue / 4 / kB * 16 + kValue / 2 % 2 * 8,
      kColumn = kValue / 4 % kB * 8 + kValue % 2,
      kN = kWeightA ? kColumn : kRow,
      kOut = kWeightA ? kRow : kColumn,
    };
    ptx::store_shared<kN * WarpReduction<Config>::kPitch + kOut * 4>(
        first, accumulators[kValue / 4 / kB][kValue / 4 % kB][kValue % 4]);
    if constexpr (kValue + 1 < kA * kB * 4) put<kValue + 1>(first);
  }
};

/// The accumulators of one warp on CUDA cores. In each unit of W, a lane has a quarter of its row.
template <class Config>
struct WarpSimtTile {
  using Stages = WarpStages<Config>;
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
  __device__ __forceinline__ GatheredTile<Config> gathered() {
    __syncthreads();  // all threads have read the item before
    const int lane = static_cast<int>(threadIdx.x % 32);
    const unsigned first = WarpReduction<Config>::place(static_cast<int>(threadIdx.x / 32), 0, lane / 4);
    put<0>(first, lane % 4);
    __syncthreads();
    return WarpReduction<Config>::sum();
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
    if (quarter == kBatchRow % 4)
      ptx::store_shared<kBatchRow * WarpReduction<Config>::kPitch + kUnit * 32>(first, total);
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
/// the Product, and what `spmm` needs.
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
