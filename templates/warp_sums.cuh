#pragma once

#include "epilogue.cuh"
#include "load_warp.cuh"
#include "ptx.cuh"
#include "ptx_mma.cuh"

// How warps that share the blocks of an item add their sums at its end: in ascending order of the warps.

namespace sparsekiln {

/// The sums of an item over all warps, distributed over the threads: kRun consecutive outputs per thread,
/// with each of the weights.
template <class Config, class Sum>
struct GatheredTile {
  enum : int {
    kRun = Config::run,
    kRows = Config::weights,
    kRuns = Config::block_out / kRun,
    kLine = Config::threads < kRuns ? Config::threads : kRuns,  ///< threads along the outputs
    kLines = Config::threads / kLine < Config::tile_n ? Config::threads / kLine : Config::tile_n,
    kHolders = kLine * kLines,
    kOut = Config::block_out / kLine,
    kN = Config::tile_n / kLines,
  };
  Sum accumulators[kRows][kN][kOut];

  __device__ __forceinline__ int n_of(int j) const {
    const int thread = static_cast<int>(threadIdx.x);
    if (kHolders < Config::threads && thread >= kHolders) return 0x7fffffff;
    return thread / kLine + j * kLines;
  }
  __device__ __forceinline__ int out_of(int i) const {
    return (i / kRun * kLine + static_cast<int>(threadIdx.x) % kLine) * kRun + i % kRun;
  }
  __device__ __forceinline__ Sum& at(int r, int j, int i) { return accumulators[r][j][i]; }
  __device__ __forceinline__ Sum at(int r, int j, int i) const { return accumulators[r][j][i]; }
};

/// The shared memory in which warps add their accumulators. It follows that of Operands and has, for each
/// warp, tile_n rows of warp_out sums and four more, so that the lanes of a fragment meet no bank conflict
/// where W is A.
template <class Config, class Operands, class Sum>
struct WarpReduction {
  using Share = WarpShare<Config>;
  enum : int {
    kPitch = (Config::warp_out + 4) * 4,
    kWarpBytes = Config::tile_n * kPitch,
    kFirst = Config::warps * Operands::kWarpBytes,
    kPiece = Config::run < 4 ? Config::run : 4,  ///< sums that are read at once
  };
  static_assert(kFirst + Config::warps * kWarpBytes == Config::shared_bytes, "as the launch gives");
  __device__ static __forceinline__ unsigned place(int warp, int n, int out) {
    return ptx::dynamic_shared() + kFirst + warp * kWarpBytes + n * kPitch + out * 4;
  }
  /// Adds what all warps have written. The caller calls the barrier in between.
  __device__ static __forceinline__ GatheredTile<Config, Sum> sum() {
    using Tile = GatheredTile<Config, Sum>;
    Tile tile{};
    if (Tile::kHolders < Config::threads && static_cast<int>(threadIdx.x) >= Tile::kHolders) return tile;
#pragma unroll
    for (int r = 0; r < Tile::kRows; ++r)
#pragma unroll
      for (int j = 0; j < Tile::kN; ++j)
#pragma unroll
        for (int i = 0; i < Tile::kOut; i += Tile::kRun) {
          const int out = tile.out_of(i);
          const int share = r * Share::kSlices + out / Config::warp_out;
          const unsigned first = place(share, tile.n_of(j), out % Config::warp_out);
#pragma unroll
          for (int group = 0; group < Share::kStrides; ++group)
#pragma unroll
            for (int piece = 0; piece < Tile::kRun; piece += kPiece) {
              float words[kPiece];
              ptx::load_shared(words, first + group * (Share::kShares * kWarpBytes) + piece * 4);
#pragma unroll
              for (int v = 0; v < kPiece; ++v)
                if (group == 0)
                  take_word(tile.at(r, j, i + piece + v), words[v]);
                else
                  add_word(tile.at(r, j, i + piece + v), words[v]);
            }
        }
    return tile;
  }
};

/// The accumulators of one warp on tensor cores, kA × kB tiles of 16 × 8.
template <class Config, class Operands>
struct WarpSums {
  using Place = KnownItemPlace<Config>;
  using Sum = typename Config::Product::Sum;
  using Reduction = WarpReduction<Config, Operands, Sum>;
  enum : bool { kWeightA = Config::weight_a };
  enum : int {
    kA = (kWeightA ? Config::warp_out : Config::tile_n) / 16,
    kB = (kWeightA ? Config::tile_n : Config::warp_out) / 8,
    // Outputs of kInterleaved tiles of eight alternate, so many at a time.
    kInterleaved = Operands::kInterleaved,
    kPerWord = kInterleaved == 1 ? 2 : 4 / static_cast<int>(sizeof(typename Config::Element)),
  };
  Sum accumulators[kA][kB][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < kA * kB * 4; ++v) accumulators[v / 4 / kB][v / 4 % kB][v % 4] = 0;
  }
  __device__ __forceinline__ GatheredTile<Config, Sum> gathered() {
    __syncthreads();  // all threads have read the item before
    // An optimization barrier. Without it, what follows from the thread is computed before the first item,
    // and held in more registers than there are.
    const int thread = static_cast<int>(ptx::kept(threadIdx.x));
    const int lane = thread % 32;
    const int row = lane / 4;         // row within the upper eight of a tile
    const int column = lane % 4 * 2;  // column within the eight of a tile
    const unsigned first = kWeightA
                               ? Reduction::place(thread / 32, column,
                                                  row / kPerWord * (kPerWord * kInterleaved) + row % kPerWord)
                               : Reduction::place(thread / 32, row, column * kInterleaved);
    put<0>(first);
    __syncthreads();
    return Reduction::sum();
  }

 private:
  template <int kValue>
  __device__ __forceinline__ void put(unsigned first) const {
    enum : int {
      kRows8 = kValue / 4 / kB * 2 + kValue / 2 % 2,
      kColumns8 = kValue / 4 % kB,
      kN = kWeightA ? kColumns8 * 8 + kValue % 2 : kRows8 * 8,
      kTile = kWeightA ? kRows8 : kColumns8,
      kNext = kWeightA ? 0 : kValue % 2 * (kPerWord == 2 ? 1 : int{kInterleaved}),
      kOut = kTile / kInterleaved * (8 * kInterleaved) + kTile % kInterleaved * kPerWord + kNext,
    };
    // The batch row and the output alternate with the values; neighbouring outputs are written at once.
    enum : bool { kPair = !kWeightA && kPerWord == 2 };
    enum : int { kPlace = kN * Reduction::kPitch + kOut * 4, kTaken = kPair ? 2 : 1 };
    const Sum(&sums)[4] = accumulators[kValue / 4 / kB][kValue / 4 % kB];
    if constexpr (kPair) {
      const float pair[2] = {word_of(sums[kValue % 4]), word_of(sums[kValue % 4 + 1])};
      ptx::store_shared<kPlace>(first, pair);
    } else {
      ptx::store_shared<kPlace>(first, word_of(sums[kValue % 4]));
    }
    if constexpr (kValue + kTaken < kA * kB * 4) put<kValue + kTaken>(first);
  }
};

}  // namespace sparsekiln
