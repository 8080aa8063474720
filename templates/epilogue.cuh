#pragma once

#include "activation.cuh"
#include "ptx.cuh"
#include "schedule.cuh"

// Epilogues: what becomes of the sums of an item. A Tile offers kRows output tiles of kN × kOut values a
// thread, at(r, j, i), and their places n_of(j) and out_of(i); kRun values from a multiple of kRun on are
// neighbours along out, within one block row. The first kHolders threads have such values; n_of(j) of the
// others is behind every batch.

namespace sparsekiln {

/// What a kernel reads besides x and W (Epilogue and Computation in include/sparsekiln/problem.h have the
/// formulas); what Config has not is not looked at.
template <class Config>
struct Ends {
  using Element = typename Config::Output::Element;
  float alpha = 1;
  float beta = 0;
  const Element* bias = nullptr;
  const typename Config::Element* v = nullptr;  ///< the other weight of a glu pair
  const Element* v_bias = nullptr;
  const Element* residual = nullptr;  ///< of the batch tile's first entry
  long long residual_stride = 0;
  const float* gates = nullptr;
  const typename Config::Element* z = nullptr;
  long long z_stride = 0;
};

/// Where the sums of one batch tile go.
template <class Config>
struct Destination {
  typename Config::Output::Element* y;  ///< of the first batch entry
  long long y_stride;
  int valid;  ///< batch entries that exist
  void* workspace;
  int batch_tile;
  Ends<Config> ends;
};

/// alpha · sum + bias, of W or V.
template <class Config>
__device__ __forceinline__ float scaled(float sum, float bias, const Ends<Config>& ends) {
  if constexpr (Config::scales && Config::has_bias) return __fmaf_rn(ends.alpha, sum, bias);
  if constexpr (Config::scales) return ends.alpha * sum;
  if constexpr (Config::has_bias) return sum + bias;
  return sum;
}

/// What becomes of neighbouring sums of one batch entry, the first of which goes to `y`.
template <class Config, int kRun>
__device__ __forceinline__ void end(float (&run)[kRun], long long at_residual,
                                    const typename Config::Output::Element* y, const Ends<Config>& ends) {
  using Output = typename Config::Output;
  if constexpr (Config::has_residual) {
    float residual[kRun];
    Output::read(ends.residual + at_residual, residual);
#pragma unroll
    for (int v = 0; v < kRun; ++v) run[v] += residual[v];
  }
  if constexpr (Config::scales) {
    if (ends.beta != 0) {
      float before[kRun];
      Output::read(y, before);
#pragma unroll
      for (int v = 0; v < kRun; ++v) run[v] = __fmaf_rn(ends.beta, before[v], run[v]);
    }
  }
}

/// Ends and writes neighbouring values of one batch entry, as wide as the alignment of activations lets it:
/// kPiece at once; one by one where only the first `left` exist.
template <class Config, int kRun>
__device__ __forceinline__ void write(const float (&run)[kRun], long long at_residual,
                                      typename Config::Output::Element* y, long long left,
                                      const Ends<Config>& ends) {
  using Output = typename Config::Output;
  enum : int {
    kAligned = Config::alignment / int{sizeof(typename Output::Element)},
    kPiece = kRun < kAligned ? kRun : kAligned,
  };
#pragma unroll
  for (int first = 0; first < kRun; first += kPiece) {
    if (Config::out_features == 0 || first + kPiece <= left) {
      float piece[kPiece];
#pragma unroll
      for (int v = 0; v < kPiece; ++v) piece[v] = run[first + v];
      end<Config>(piece, at_residual + first, y + first, ends);
      Output::write(y + first, piece);
    } else {
#pragma unroll
      for (int v = first; v < first + kPiece; ++v) {
        if (v >= left) continue;
        float one[1] = {run[v]};
        end<Config>(one, at_residual + v, y + v, ends);
        Output::write(y + v, one);
      }
    }
  }
}

/// y[n, out], or y[out, n], = the epilogue of its sum, for the batch entries, the block rows and the features
/// that exist.
template <class Config, class Tile>
__device__ __forceinline__ void store(const typename Config::Table& table, int item, const Tile& tile,
                                      const Destination<Config>& to) {
  enum : int {
    kRun = Config::feature_major ? 1 : int{Tile::kRun},  ///< outputs that lie together
    kTiles = int{Tile::kRows} / Config::weights,
  };
  const auto place_of = [](int n, long long feature, long long stride) {
    return Config::feature_major ? feature * stride + n : n * stride + feature;
  };
#pragma unroll
  for (int r = 0; r < kTiles; ++r) {
    const int place = (item * kTiles + r) * Config::merge;
    const int only_row = table.row(place);
    if (kTiles > 1 && Config::merge == 1 && only_row < 0) continue;
#pragma unroll
    for (int i = 0; i < Tile::kOut; i += kRun) {
      const int out = tile.out_of(i);
      const int row = Config::merge == 1 ? only_row : table.row(place + out / Config::block_out);
      if (Config::merge > 1 && row < 0) continue;
      const long long feature = static_cast<long long>(row) * Config::block_out +
                                (Config::merge == 1 ? out : out % Config::block_out);
      const long long left = Config::out_features - feature;  // where the last block row is cut
      if (Config::out_features != 0 && left <= 0) continue;
      float bias[Config::weights][kRun] = {};
      if constexpr (Config::has_bias) {
#pragma unroll
        for (int v = 0; v < kRun; ++v) {
          if (Config::out_features != 0 && v >= left) continue;
          bias[0][v] = Config::Output::read(to.ends.bias + feature + v);
          if constexpr (Config::weights > 1) bias[1][v] = Config::Output::read(to.ends.v_bias + feature + v);
        }
      }
#pragma unroll
      for (int j = 0; j < Tile::kN; ++j) {
        const int n = tile.n_of(j);
        if (n >= to.valid) continue;
        float run[kRun];
#pragma unroll
        for (int v = 0; v < kRun; ++v) {
          run[v] = Config::Activation::apply(
              scaled<Config>(tile.at(r * Config::weights, j, i + v), bias[0][v], to.ends));
          if constexpr (Config::weights > 1)
            run[v] *= scaled<Config>(tile.at(r * Config::weights + 1, j, i + v), bias[1][v], to.ends);
        }
        write<Config>(run, place_of(n, feature, to.ends.residual_stride),
                      to.y + place_of(n, feature, to.y_stride), left, to.ends);
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
