#pragma once

#include "sddmm.cuh"

// Gradient of the weight on CUDA cores, in float32.
//
// Exact order: a chunk has tile_n batch entries, those behind the last are zeros. Part p of an element is 0,
// to which one fused multiply-add is applied for every kParts-th entry of each chunk, from the p-th on, in
// ascending order of pairs and entries. The parts are added in ascending order. Feature-major, parts take
// every kParts-th four entries instead.

namespace sparsekiln {

/// The sums of a run: tile_out × tile_out for each thread, in quads of columns and rows. The quads of
/// neighbouring threads are neighbours, so that eight threads read 128 bytes of an entry of x.
template <class Config>
struct SddmmSimtTile {
  template <int kUnits>
  using Rows = PlainRows<kUnits>;
  using Sums = SddmmSums<Config>;
  enum : int {
    kColumns = Config::width * Config::block_in,
    kQuads = Config::tile_out / 4,
    kThreadsIn = kColumns / Config::tile_out,
    kThreadsOut = Config::block_out / Config::tile_out,
    kParts = Config::threads / (kThreadsIn * kThreadsOut),
    kRowA = Config::block_out * 4,
    kRowB = kColumns * 4,
    kUnroll = Config::tile_out == 4 ? 8 : 2,
  };
  static_assert(Config::chunk % kParts == 0);

  const int thread_in = static_cast<int>(threadIdx.x) % kThreadsIn;
  const int thread_out = static_cast<int>(threadIdx.x) / kThreadsIn % kThreadsOut;
  const int part = static_cast<int>(threadIdx.x) / (kThreadsIn * kThreadsOut);
  float sums[Config::tile_out][Config::tile_out];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < Config::tile_out * Config::tile_out; ++v)
      sums[v / Config::tile_out][v % Config::tile_out] = 0;
  }

  __device__ __forceinline__ void multiply(unsigned dy, unsigned x, unsigned wanted) {
    if (wanted == 0) return;
    unsigned a_place = dy + static_cast<unsigned>(part * kRowA + thread_out * 16);
    unsigned b_place = x + static_cast<unsigned>(part * kRowB + thread_in * 16);
#pragma unroll kUnroll
    for (int entry = 0; entry < Config::chunk / kParts; ++entry) {
      float a[kQuads][4];
      float b[kQuads][4];
      load<kThreadsOut * 16, 0>(a, a_place);
      load<kThreadsIn * 16, 0>(b, b_place);
      a_place += kParts * kRowA;
      b_place += kParts * kRowB;
#pragma unroll
      for (int i = 0; i < Config::tile_out; ++i)
#pragma unroll
        for (int j = 0; j < Config::tile_out; ++j)
          sums[i][j] = __fmaf_rn(a[i / 4][i % 4], b[j / 4][j % 4], sums[i][j]);
    }
  }

  /// Adds the sums of one part to those that lie in shared memory; part 0 begins them.
  __device__ __forceinline__ void put(int of_part) const {
    if (part != of_part) return;
#pragma unroll
    for (int i = 0; i < Config::tile_out; ++i)
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const unsigned place =
            Sums::place((i / 4 * kThreadsOut + thread_out) * 4 + i % 4, (q * kThreadsIn + thread_in) * 4);
        float quad[4];
#pragma unroll
        for (int v = 0; v < 4; ++v) quad[v] = sums[i][q * 4 + v];
        if (of_part != 0) {
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

/// The same of feature-major operands, read four entries of a feature at once. Neighbouring threads have
/// neighbouring features, whose units of the same entries lie in different banks.
template <class Config>
struct SddmmSimtFeatureTile {
  template <int kUnits>
  using Rows = EntryRows<kUnits, 2>;
  using Sums = SddmmSums<Config>;
  enum : int {
    kSide = Config::tile_out,
    kThreadsIn = Config::width * Config::block_in / kSide,
    kThreadsOut = Config::block_out / kSide,
    kParts = Config::threads / (kThreadsIn * kThreadsOut),
    kUnits = Config::chunk / 4,
    kRow = Config::chunk * 4,
    kPeriod = 8,  ///< features after which the order of units is the same
    kUnroll = kSide == 4 ? 2 : 1,
  };
  static_assert(kUnits % kParts == 0);

  const int thread_in = static_cast<int>(threadIdx.x) % kThreadsIn;
  const int thread_out = static_cast<int>(threadIdx.x) / kThreadsIn % kThreadsOut;
  const int part = static_cast<int>(threadIdx.x) / (kThreadsIn * kThreadsOut);
  float sums[kSide][kSide];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < kSide * kSide; ++v) sums[v / kSide][v % kSide] = 0;
  }

  __device__ __forceinline__ void multiply(unsigned dy, unsigned x, unsigned wanted) {
    if (wanted == 0) return;
    const unsigned a_first = offset(thread_out);
    const unsigned b_first = offset(thread_in);
#pragma unroll kUnroll
    for (int unit = part; unit < kUnits; unit += kParts) {
      float b[kSide][4];
      load_b<0>(b, x, b_first ^ static_cast<unsigned>(unit * 16));
      multiply_rows<0>(b, dy, a_first ^ static_cast<unsigned>(unit * 16));
    }
  }

  /// Adds the sums of one part to those that lie in shared memory; part 0 begins them.
  __device__ __forceinline__ void put(int of_part) const {
    if (part != of_part) return;
#pragma unroll
    for (int i = 0; i < kSide; ++i)
#pragma unroll
      for (int j = 0; j < kSide; ++j) {
        const unsigned place = Sums::place(i * kThreadsOut + thread_out, j * kThreadsIn + thread_in);
        float sum = sums[i][j];
        if (of_part != 0) {
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
  /// A thread's features are powers of two apart, and their bits those of its first: exclusive or with their
  /// distance's offset gives theirs, of which whole periods are part of the instruction.
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
    for (int entry = 0; entry < 4; ++entry)
#pragma unroll
      for (int j = 0; j < kSide; ++j) sums[kOf][j] = __fmaf_rn(a[entry], b[j][entry], sums[kOf][j]);
    if constexpr (kOf + 1 < kSide) multiply_rows<kOf + 1>(b, shared, place);
  }
};

/// Config names what `grad_weight` needs, and tile_out.
template <class Config>
__device__ __forceinline__ void sddmm_simt(const ActivationPairs& pairs,
                                           typename Config::Output::Element* __restrict__ dw, int n,
                                           long long x_stride, long long dy_stride, long long z_stride,
                                           const SddmmEpilogue<Config>& ends, typename Config::Table table) {
  if constexpr (Config::feature_major)
    grad_weight<Config, SddmmSimtFeatureTile<Config>>(pairs, dw, n, x_stride, dy_stride, z_stride, ends,
                                                      table);
  else
    grad_weight<Config, SddmmSimtTile<Config>>(pairs, dw, n, x_stride, dy_stride, z_stride, ends, table);
}

}  // namespace sparsekiln
