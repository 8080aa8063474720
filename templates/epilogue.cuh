#pragma once

#include "ptx.cuh"
#include "schedule.cuh"

// Epilogues: what becomes of a tile of sums. A tile offers kN × kOut values a thread, at(j, i), and their
// places n_of(j) and out_of(i); kRun values from a multiple of kRun on are neighbours along out.

namespace sparsekiln {

/// y[n, out] = sum, for the batch entries that exist.
template <class Output, class Tile>
__device__ __forceinline__ void store(const Tile& tile, typename Output::Element* y, long long y_stride,
                                      int valid) {
#pragma unroll
  for (int j = 0; j < Tile::kN; ++j) {
    if (tile.n_of(j) >= valid) continue;
    typename Output::Element* const row = y + tile.n_of(j) * y_stride;
#pragma unroll
    for (int i = 0; i < Tile::kOut; i += Tile::kRun) {
      float run[Tile::kRun];
#pragma unroll
      for (int v = 0; v < Tile::kRun; ++v) run[v] = tile.at(j, i + v);
      Output::write(row + tile.out_of(i), run);
    }
  }
}

/// Leaves the sums of one part of a split row in the workspace. True in the CTA that comes last, whose tile
/// then holds part 0 + part 1 + …, in this order whoever came when, and whose row's counter is zero again.
/// Nobody waits.
template <int kThreads, class Tile>
__device__ __forceinline__ bool combine(Tile& tile, const SplitPart& split, unsigned* counters,
                                        float* partials) {
  enum : int { kValues = Tile::kN * Tile::kOut };
  __shared__ bool last;
  const int thread = static_cast<int>(threadIdx.x);
  float* const own = partials + static_cast<long long>(split.slot) * (kValues * kThreads) + thread;
#pragma unroll
  for (int v = 0; v < kValues; ++v) own[v * kThreads] = tile.at(v / Tile::kOut, v % Tile::kOut);
  __syncthreads();
  if (thread == 0) {
    __threadfence();  // for the sums of all threads, which the barrier has put before it
    last = atomicAdd(counters + split.counter, 1u) + 1 == static_cast<unsigned>(split.parts);
    __threadfence();
  }
  __syncthreads();
  if (!last) return false;

  const float* part = partials + static_cast<long long>(split.first) * (kValues * kThreads) + thread;
#pragma unroll
  for (int v = 0; v < kValues; ++v)
    tile.at(v / Tile::kOut, v % Tile::kOut) = ptx::load_relaxed(part + v * kThreads);
  for (int p = 1; p < split.parts; ++p) {
    part += kValues * kThreads;
#pragma unroll
    for (int v = 0; v < kValues; ++v)
      tile.at(v / Tile::kOut, v % Tile::kOut) += ptx::load_relaxed(part + v * kThreads);
  }
  if (thread == 0) counters[split.counter] = 0;
  return true;
}

}  // namespace sparsekiln
