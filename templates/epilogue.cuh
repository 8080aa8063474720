#pragma once

#include "ptx.cuh"
#include "schedule.cuh"

// Epilogues: what becomes of the sums of an item. A Tile offers kRows output tiles of kN × kOut values a
// thread, at(r, j, i), and their places n_of(j) and out_of(i); kRun values from a multiple of kRun on are
// neighbours along out, within one block row. The first kHolders threads have such values; n_of(j) of the
// others is behind every batch.

namespace sparsekiln {

/// Where the sums of one batch tile go.
template <class Config>
struct Destination {
  typename Config::Output::Element* y;  ///< of the first batch entry
  long long y_stride;
  int valid;  ///< batch entries that exist
  void* workspace;
  int batch_tile;
};

/// A run of sums where y is feature-major: each is in a row of its own.
template <class Config, class Tile>
__device__ __forceinline__ void store_features(const Tile& tile, int r, int j, int i, int row,
                                               const Destination<Config>& to) {
#pragma unroll
  for (int v = 0; v < Tile::kRun; ++v) {
    const long long feature =
        static_cast<long long>(row) * Config::block_out +
        (Config::merge == 1 ? tile.out_of(i + v) : tile.out_of(i + v) % Config::block_out);
    const float one[1] = {tile.at(r, j, i + v)};
    Config::Output::write(to.y + feature * to.y_stride + tile.n_of(j), one);
  }
}

/// A run of sums, where `row` begins at the outputs of their block row.
template <class Config, class Tile>
__device__ __forceinline__ void store_run(const Tile& tile, int r, int j, int i,
                                          typename Config::Output::Element* row) {
  float run[Tile::kRun];
#pragma unroll
  for (int v = 0; v < Tile::kRun; ++v) run[v] = tile.at(r, j, i + v);
  const int out = tile.out_of(i);
  Config::Output::write(row + (Config::merge == 1 ? out : out % Config::block_out), run);
}

/// y[n, out] = sum, or y[out, n], for the batch entries and the block rows that exist.
template <class Config, class Tile>
__device__ __forceinline__ void store(const typename Config::Table& table, int item, const Tile& tile,
                                      const Destination<Config>& to) {
#pragma unroll
  for (int r = 0; r < Tile::kRows; ++r) {
    const int place = (item * Tile::kRows + r) * Config::merge;
    const int only_row = table.row(place);
    if (Tile::kRows > 1 && Config::merge == 1 && only_row < 0) continue;
#pragma unroll
    for (int j = 0; j < Tile::kN; ++j) {
      if (tile.n_of(j) >= to.valid) continue;
      auto* const line = to.y + (Config::feature_major ? 0 : tile.n_of(j) * to.y_stride);
#pragma unroll
      for (int i = 0; i < Tile::kOut; i += Tile::kRun) {
        const int out = tile.out_of(i);
        const int row = Config::merge == 1 ? only_row : table.row(place + out / Config::block_out);
        if (Config::merge > 1 && row < 0) continue;
        if constexpr (Config::feature_major)
          store_features(tile, r, j, i, row, to);
        else
          store_run<Config>(tile, r, j, i, line + static_cast<long long>(row) * Config::block_out);
      }
    }
  }
}

/// Leaves the sums of one part of a split item in the workspace. True in the CTA that comes last, whose tile
/// then holds part 0 + part 1 + …, in this order whoever came when, and whose item's counter is zero again.
/// Nobody waits.
template <int kThreads, class Tile>
__device__ __forceinline__ bool combine(Tile& tile, const SplitPart& split, unsigned* counters,
                                        float* partials) {
  enum : int {
    kOfTile = Tile::kN * Tile::kOut,
    kValues = Tile::kRows * kOfTile,
    kHolders = Tile::kHolders,
  };
  const auto value = [&](int v) -> float& {
    return tile.at(v / kOfTile, v % kOfTile / Tile::kOut, v % Tile::kOut);
  };
  __shared__ bool last;
  const int thread = static_cast<int>(threadIdx.x);
  const bool holds = int{kHolders} == kThreads || thread < kHolders;
  float* const own = partials + static_cast<long long>(split.slot) * (kValues * kHolders) + thread;
#pragma unroll
  for (int v = 0; v < kValues; ++v)
    if (holds) own[v * kHolders] = value(v);
  __syncthreads();
  if (thread == 0) {
    __threadfence();  // for the sums of all threads, which the barrier has put before it
    last = atomicAdd(counters + split.counter, 1u) + 1 == static_cast<unsigned>(split.parts);
    __threadfence();
  }
  __syncthreads();
  if (!last) return false;
  if (thread == 0) counters[split.counter] = 0;
  if (!holds) return true;

  const float* part = partials + static_cast<long long>(split.first) * (kValues * kHolders) + thread;
#pragma unroll
  for (int v = 0; v < kValues; ++v) value(v) = ptx::load_relaxed(part + v * kHolders);
  for (int p = 1; p < split.parts; ++p) {
    part += kValues * kHolders;
#pragma unroll
    for (int v = 0; v < kValues; ++v) value(v) += ptx::load_relaxed(part + v * kHolders);
  }
  return true;
}

/// The end of an item: the sums go to y, those of a part by way of the workspace.
template <class Config, class Tile>
__device__ __forceinline__ void finish(const typename Config::Table& table, int item, Tile& tile,
                                       const Destination<Config>& to) {
  if constexpr (Config::splits) {
    if (const int split = table.split(item); split >= 0) {
      auto* const counters =
          static_cast<unsigned*>(to.workspace) + static_cast<long long>(to.batch_tile) * table.counters();
      char* const partials =
          static_cast<char*>(to.workspace) + table.counter_bytes() + to.batch_tile * table.tile_bytes();
      if (!combine<Config::threads>(tile, table.part(split), counters, reinterpret_cast<float*>(partials)))
        return;
    }
  }
  store(table, item, tile, to);
}

}  // namespace sparsekiln
