#pragma once

#include "ptx.cuh"
#include "ptx_mma.cuh"

// How warps that share the blocks of an item add their sums at its end: in ascending order of the warps.

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

/// The shared memory in which warps add their accumulators. It follows that of Operands and has, for each
/// warp, tile_n rows of block_out floats and four more, so that the lanes of a fragment meet no bank conflict
/// where W is A.
template <class Config, class Operands>
struct WarpReduction {
  enum : int {
    kPitch = (Config::block_out + 4) * 4,
    kWarpBytes = Config::tile_n * kPitch,
    kFirst = Config::warps * Operands::kWarpBytes,
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
template <class Config, class Operands>
struct WarpSums {
  using Reduction = WarpReduction<Config, Operands>;
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
  __device__ __forceinline__ GatheredTile<Config> gathered() {
    __syncthreads();  // all threads have read the item before
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int row = lane / 4;         // row within the upper eight of a tile
    const int column = lane % 4 * 2;  // column within the eight of a tile
    const unsigned first = kWeightA ? Reduction::place(static_cast<int>(threadIdx.x / 32), column, row)
                                    : Reduction::place(static_cast<int>(threadIdx.x / 32), row, column);
    put<0>(first);
    __syncthreads();
    return Reduction::sum();
  }

 private:
  template <int kValue>
  __device__ __forceinline__ void put(unsigned first) const {
    enum : int {
      kRow = kValue / 4 / kB * 16 + kValue / 2 % 2 * 8,
      kColumn = kValue / 4 % kB * 8 + kValue % 2,
      kN = kWeightA ? kColumn : kRow,
      kOut = kWeightA ? kRow : kColumn,
    };
    ptx::store_shared<kN * Reduction::kPitch + kOut * 4>(
        first, accumulators[kValue / 4 / kB][kValue / 4 % kB][kValue % 4]);
    if constexpr (kValue + 1 < kA * kB * 4) put<kValue + 1>(first);
  }
};

}  // namespace sparsekiln
