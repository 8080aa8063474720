#pragma once

#include "sddmm.cuh"

// SDDMM on CUDA cores, in float32.
//
// Exact order: a chunk has tile_n batch rows; those after the last one that exists are zeros. Batch slice s
// of an element is 0, to which one fused multiply-add is applied for every kBatchSlices-th batch row of each
// chunk, from the s-th on, in ascending order of pairs and batch rows. The slices are added in ascending
// order. Feature-major, a slice takes every kBatchSlices-th group of four batch rows instead.

namespace sparsekiln {

/// The accumulators of a run: tile_out × tile_out for each thread, in quads of columns and rows. Neighboring
/// threads have neighboring quads, so that eight threads read 128 bytes of a batch row of x.
template <class Config>
struct SddmmSimtTile {
  template <int kUnits>
  using Rows = PlainRows<kUnits>;
  using Shared = SharedAccumulators<Config>;
  enum : int {
    kColumns = Config::width * Config::block_in,
    kQuads = Config::tile_out / 4,
    kThreadsIn = kColumns / Config::tile_out,
    kThreadsOut = Config::block_out / Config::tile_out,
    kBatchSlices = Config::threads / (kThreadsIn * kThreadsOut),
    kRowA = Config::block_out * 4,
    kRowB = kColumns * 4,
    kUnroll = Config::tile_out == 4 ? 8 : 2,
  };
  static_assert(Config::chunk % kBatchSlices == 0);

  const int thread_in = static_cast<int>(threadIdx.x) % kThreadsIn;
  const int thread_out = static_cast<int>(threadIdx.x) / kThreadsIn % kThreadsOut;
  const int slice = static_cast<int>(threadIdx.x) / (kThreadsIn * kThreadsOut);
  float accumulators[Config::tile_out][Config::tile_out];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < Config::tile_out * Config::tile_out; ++v)
      accumulators[v / Config::tile_out][v % Config::tile_out] = 0;
  }

  __device__ __forceinline__ void multiply(unsigned dy, unsigned x, unsigned wanted) {
    if (wanted == 0) return;
    unsigned a_place = dy + static_cast<unsigned>(slice * kRowA + thread_out * 16);
    unsigned b_place = x + static_cast<unsigned>(slice * kRowB + thread_in * 16);
#pragma unroll kUnroll
    for (int batch_row = 0; batch_row < Config::chunk / kBatchSlices; ++batch_row) {
      float a[kQuads][4];
      float b[kQuads][4];
      load<kThreadsOut * 16, 0>(a, a_place);
      load<kThreadsIn * 16, 0>(b, b_place);
      a_place += kBatchSlices * kRowA;
      b_place += kBatchSlices * kRowB;
#pragma unroll
      for (int i = 0; i < Config::tile_out; ++i)
#pragma unroll
        for (int j = 0; j < Config::tile_out; ++j)
          accumulators[i][j] = __fmaf_rn(a[i / 4][i % 4], b[j / 4][j % 4], accumulators[i][j]);
    }
  }

  /// Adds the accumulators of one batch slice to those in shared memory; slice 0 writes them.
  __device__ __forceinline__ void put(int wanted_slice) const {
    if (slice != wanted_slice) return;
#pragma unroll
    for (int i = 0; i < Config::tile_out; ++i)
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const unsigned place =
            Shared::place((i / 4 * kThreadsOut + thread_out) * 4 + i % 4, (q * kThreadsIn + thread_in) * 4);
        float quad[4];
#pragma unroll
        for (int v = 0; v < 4; ++v) quad[v] = accumulators[i][q * 4 + v];
        if (wanted_slice != 0) {
          float before[4];
          ptx::load_shared<0>(before, place);
#pragma unroll
          for (int v = 0; v < 4; ++v) quad[v] += before[v];
        }
        ptx::store_shared(place, quad);
      }
  }

 private:
  template <int kDistance, int kQuad>
  __device__ static __forceinline__ void load(float (&to)[kQuads][4], unsigned place) {
    ptx::load_shared<kQuad * kDistance>(to[kQuad], place);
    if constexpr (kQuad + 1 < kQuads) load<kDistance, kQuad + 1>(to, place);
  }
};

/// The tile for feature-major operands. Four batch rows of a feature are read at once. Neighboring threads
/// have neighboring features, and the units that they read at the same time are in different banks.
template <class Config>
struct SddmmSimtFeatureTile {
  template <int kUnits>
  using Rows = BatchRows<kUnits, 2>;
  using Shared = SharedAccumulators<Config>;
  enum : int {
    kSide = Config::tile_out,
    kThreadsIn = Config::width * Config::block_in / kSide,
    kThreadsOut = Config::block_out / kSide,
    kBatchSlices = Config::threads / (kThreadsIn * kThreadsOut),
    kUnits = Config::chunk / 4,
    kRow = Config::chunk * 4,
    kPeriod = 8,  ///< features after which the swizzle repeats
    kUnroll = kSide == 4 ? 2 : 1,
  };
  static_assert(kUnits % kBatchSlices == 0);

  const int thread_in = static_cast<int>(threadIdx.x) % kThreadsIn;
  const int thread_out = static_cast<int>(threadIdx.x) / kThreadsIn % kThreadsOut;
  const int slice = static_cast<int>(threadIdx.x) / (kThreadsIn * kThreadsOut);
  float accumulators[kSide][kSide];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < kSide * kSide; ++v) accumulators[v / kSide][v % kSide] = 0;
  }

  __device__ __forceinline__ void multiply(unsigned dy, unsigned x, unsigned wanted) {
    if (wanted == 0) return;
    const unsigned a_first = offset(thread_out);
    const unsigned b_first = offset(thread_in);
#pragma unroll kUnroll
    for (int unit = slice; unit < kUnits; unit += kBatchSlices) {
      float b[kSide][4];
      load_b<0>(b, x, b_first ^ static_cast<unsigned>(unit * 16));
      multiply_rows<0>(b, dy, a_first ^ static_cast<unsigned>(unit * 16));
    }
  }

  /// Adds the accumulators of one batch slice to those in shared memory; slice 0 writes them.
  __device__ __forceinline__ void put(int wanted_slice) const {
    if (slice != wanted_slice) return;
#pragma unroll
    for (int i = 0; i < kSide; ++i)
#pragma unroll
      for (int j = 0; j < kSide; ++j) {
        const unsigned place = Shared::place(i * kThreadsOut + thread_out, j * kThreadsIn + thread_in);
        float sum = accumulators[i][j];
        if (wanted_slice != 0) {
          float before[1];
          ptx::load_shared(before, place);
          sum += before[0];
        }
        ptx::store_shared<0>(place, sum);
      }
  }

 private:
  __device__ static __forceinline__ unsigned offset(int feature) {
    return Rows<kUnits>::offset(static_cast<unsigned>(feature), 0);
  }
  /// A thread's features are a power of two apart, and the bits of that distance are 0 in the number of its
  /// first feature. The offset of another feature is therefore an exclusive or of the offset of the first one
  /// and that of the distance; whole periods of the swizzle are part of the instruction.
  template <int kDistance>
  __device__ static __forceinline__ void load(float (&values)[4], unsigned shared, unsigned place) {
    ptx::load_shared<kDistance / kPeriod * kPeriod * kRow>(values,
                                                           shared + (place ^ offset(kDistance % kPeriod)));
  }
  template <int kOf>
  __device__ static __forceinline__ void load_b(float (&b)[kSide][4], unsigned shared, unsigned place) {
    load<kOf * kThreadsIn>(b[kOf], shared, place);
    if constexpr (kOf + 1 < kSide) load_b<kOf + 1>(b, shared, place);
  }
  template <int kOf>
  __device__ __forceinline__ void multiply_rows(const float (&b)[kSide][4], unsigned shared, unsigned place) {
    float a[4];
    load<kOf * kThreadsOut>(a, shared, place);
#pragma unroll
    for (int batch_row = 0; batch_row < 4; ++batch_row)
#pragma unroll
      for (int j = 0; j < kSide; ++j)
        accumulators[kOf][j] = __fmaf_rn(a[batch_row], b[j][batch_row], accumulators[kOf][j]);
    if constexpr (kOf + 1 < kSide) multiply_rows<kOf + 1>(b, shared, place);
  }
};

/// Config names what `sddmm` needs, and tile_out.
template <class Config>
__device__ __forceinline__ void sddmm_simt(const ActivationPairs& pairs, typename Config::Output::Element* dw,
                                           int n, long long x_stride, long long dy_stride, long long z_stride,
                                           const SddmmEpilogue<Config>& epilogue,
                                           typename Config::Table table) {
  if constexpr (Config::feature_major)
    sddmm<Config, SddmmSimtFeatureTile<Config>>(pairs, dw, n, x_stride, dy_stride, z_stride, epilogue, table);
  else
    sddmm<Config, SddmmSimtTile<Config>>(pairs, dw, n, x_stride, dy_stride, z_stride, epilogue, table);
}

}  // namespace sparsekiln
