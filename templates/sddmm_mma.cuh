#pragma once

#include "product.cuh"
#include "sddmm.cuh"

// Gradient of the weight on tensor cores, summed in float32. dy is A, 16 rows a tile, x is B, 8 columns; both
// are contiguous along them, not along k, the batch: 16-bit fragments are transposed by ldmatrix, floats are
// read one by one. Feature-major operands are contiguous along k, and ldmatrix gives the fragments of all
// types as they are. Of blocks with 8 outputs the lower half of A is zeros.
//
// Exact order: a chunk has tile_n batch entries, those behind the last are zeros. Of the k-steps (16 entries,
// of floats 8) that a pair's chunks have, warps of part p take every kParts-th, from the p-th of each chunk
// on, in ascending order; within a k-step the order is the hardware's. The parts are added in ascending
// order.

namespace sparsekiln {

/// The sums of a run: a grid of warps over it, warps_out × warps_in × kParts, and in each warp a grid of
/// kA × kB tensor-core tiles (16 × 8).
template <class Config>
struct SddmmMmaTile {
  using Product = typename Config::Product;
  enum : bool { kFloats = sizeof(typename Config::Element) == 4, kHalf = Config::block_out == 8 };
  /// Rows of features are read by ldmatrix, whatever their type.
  template <int kUnits>
  using Rows =
      EntryRows<kUnits, Config::feature_major ? 2 : static_cast<int>(sizeof(typename Config::Element))>;
  using Sums = SddmmSums<Config>;
  enum : int {
    kElement = static_cast<int>(sizeof(typename Config::Element)),
    kParts = Config::warps_n,
    kA = kHalf ? 1 : Config::block_out / (16 * Config::warps_out),
    kB = Config::width * Config::block_in / (8 * Config::warps_in),
    kEntries = 32 / kElement,  ///< of a k-step
    kSteps = Config::chunk / (kEntries * kParts),
    kRowA = Config::block_out * kElement,
    kRowB = Config::width * Config::block_in * kElement,
    kRow = Config::chunk * kElement,  ///< of a feature
  };
  using RowsF = Rows<kRow / 16>;
  using RowsA = Rows<kRowA / 16>;
  using RowsB = Rows<kRowB / 16>;

  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_out = static_cast<int>(threadIdx.x) / 32 % Config::warps_out;
  const int warp_in = static_cast<int>(threadIdx.x) / 32 / Config::warps_out % Config::warps_in;
  const int part = static_cast<int>(threadIdx.x) / 32 / (Config::warps_out * Config::warps_in);
  const unsigned a_first = ptx::kept(first_a());
  const unsigned b_first = ptx::kept(first_b());
  float sums[kA][kB][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < kA * kB * 4; ++v) sums[v / 4 / kB][v / 4 % kB][v % 4] = 0;
  }

  __device__ __forceinline__ void multiply(unsigned dy, unsigned x, unsigned wanted) {
    if ((wanted & columns()) == 0) return;
    multiply_steps<0>(dy, x);
  }

  /// Adds the sums of one part to those that lie in shared memory; part 0 begins them.
  __device__ __forceinline__ void put(int of_part) const {
    if (part != of_part) return;
#pragma unroll
    for (int i = 0; i < kA; ++i)
#pragma unroll
      for (int j = 0; j < kB; ++j)
#pragma unroll
        for (int half = 0; half < (kHalf ? 1 : 2); ++half) {
          const unsigned place = Sums::place((warp_out * kA + i) * 16 + half * 8 + lane / 4,
                                             (warp_in * kB + j) * 8 + lane % 4 * 2);
          float pair[2] = {sums[i][j][half * 2], sums[i][j][half * 2 + 1]};
          if (of_part != 0) {
            float before[2];
            ptx::load_shared(before, place);
            pair[0] += before[0];
            pair[1] += before[1];
          }
          ptx::store_shared(place, pair);
        }
  }

 private:
  /// The blocks of the run that this warp's columns are of, by bits.
  __device__ __forceinline__ unsigned columns() const {
    const int first = warp_in * kB * 8;
    const int last = first + kB * 8 - 1;
    return (2u << last / Config::block_in) - (1u << first / Config::block_in);
  }
  /// This lane's place in the rows of the first k-step. Of ldmatrix's matrices, of A 0 and 1 are units 0 and
  /// 1 of entries 0 to 7, 2 and 3 of entries 8 to 15; of B 0 and 1 are entries 0 to 7 and 8 to 15 of unit 0,
  /// 2 and 3 of unit 1. Of floats a lane reads entries lane % 4 and lane % 4 + 4 of column lane / 4.
  ///
  /// Feature-major, where a k-step is two units, of A 0 and 1 are features 0 to 7 and 8 to 15 of unit 0, 2
  /// and 3 of unit 1; of B 0 and 1 are units 0 and 1 of features 0 to 7, 2 and 3 of features 8 to 15.
  __device__ __forceinline__ unsigned first_a() const {
    if constexpr (Config::feature_major)
      return offset<RowsF>(warp_out * kA * 16 + lane % (kHalf ? 8 : 16),
                           part * 2 + (kHalf ? lane / 8 % 2 : lane / 16));
    const int entry = part * kEntries;
    const int unit = warp_out * kA * 16 * kElement / 16;
    if constexpr (kFloats) return float_place<RowsA>(unit);
    if constexpr (kHalf) return offset<RowsA>(entry + lane % 16, 0);
    return offset<RowsA>(entry + lane % 8 + lane / 16 * 8, unit + lane / 8 % 2);
  }
  __device__ __forceinline__ unsigned first_b() const {
    if constexpr (Config::feature_major)
      return offset<RowsF>(warp_in * kB * 8 + lane % 8 + (kB > 1 ? lane / 16 * 8 : 0),
                           part * 2 + lane / 8 % 2);
    const int entry = part * kEntries;
    const int unit = warp_in * kB * 8 * kElement / 16;
    if constexpr (kFloats) return float_place<RowsB>(unit);
    return offset<RowsB>(entry + lane % 16, unit + (kB > 1 ? lane / 16 : 0));
  }
  template <class Of>
  __device__ __forceinline__ unsigned float_place(int unit) const {
    return offset<Of>(part * kEntries + lane % 4, unit + lane / 16) + static_cast<unsigned>(lane) / 4 % 4 * 4;
  }
  template <class Of>
  __device__ static __forceinline__ unsigned offset(int entry, int unit) {
    return Of::offset(static_cast<unsigned>(entry), static_cast<unsigned>(unit));
  }

  // Tiles begin at multiples of their number, rounded up to a power of two, so that the exclusive or of the
  // rows' order goes through: the place of tile t is that of tile 0 with t's bits turned. K-steps do not
  // change the order. Feature-major, it is the other way round: a k-step's units are those of the first with
  // bits turned, and tiles, whole periods of the rows' order, lie at constant distances.

  template <int kStep>
  __device__ __forceinline__ void multiply_steps(unsigned dy, unsigned x) {
    enum : int { kFirst = kStep * kParts * kEntries };
    unsigned a[kA][4];
    unsigned b[kB][2];
    if constexpr (Config::feature_major) {
      load_features_a<0>(a, dy + (a_first ^ static_cast<unsigned>(kFirst * kElement)));
      load_features_b<0>(b, x + (b_first ^ static_cast<unsigned>(kFirst * kElement)));
    } else {
      load_a<kFirst * kRowA, 0>(a, dy);
      load_b<kFirst * kRowB, 0>(b, x);
    }
#pragma unroll
    for (int j = 0; j < kB; ++j)
#pragma unroll
      for (int i = 0; i < kA; ++i) Product::mma(sums[i][j], a[i], b[j]);
    if constexpr (kStep + 1 < kSteps) multiply_steps<kStep + 1>(dy, x);
  }
  template <int kOffset, int kTile>
  __device__ __forceinline__ void load_a(unsigned (&a)[kA][4], unsigned dy) const {
    if constexpr (kFloats) {
#pragma unroll
      for (int half = 0; half < (kHalf ? 1 : 2); ++half) {
        const unsigned place = dy + (a_first ^ static_cast<unsigned>(kTile * 64 + half * 32));
        ptx::load_word<kOffset>(a[kTile][half], place);
        ptx::load_word<kOffset + 4 * kRowA>(a[kTile][half + 2], place);
      }
      if constexpr (kHalf) a[kTile][1] = a[kTile][3] = 0;
#pragma unroll
      for (int v = 0; v < 4; ++v) a[kTile][v] = Product::convert(a[kTile][v]);
    } else if constexpr (kHalf) {
      unsigned words[2];
      ptx::load_columns<kOffset>(words, dy + a_first);
      a[0][0] = words[0];
      a[0][2] = words[1];
      a[0][1] = a[0][3] = 0;
    } else {
      ptx::load_columns<kOffset>(a[kTile], dy + (a_first ^ static_cast<unsigned>(kTile * 32)));
    }
    if constexpr (kTile + 1 < kA) load_a<kOffset, kTile + 1>(a, dy);
  }
  template <int kOffset, int kTile>
  __device__ __forceinline__ void load_b(unsigned (&b)[kB][2], unsigned x) const {
    if constexpr (kFloats) {
      const unsigned place = x + (b_first ^ static_cast<unsigned>(kTile * 32));
      ptx::load_word<kOffset>(b[kTile][0], place);
      ptx::load_word<kOffset + 4 * kRowB>(b[kTile][1], place);
#pragma unroll
      for (int v = 0; v < 2; ++v) b[kTile][v] = Product::convert(b[kTile][v]);
      if constexpr (kTile + 1 < kB) load_b<kOffset, kTile + 1>(b, x);
    } else if constexpr (kB == 1) {
      ptx::load_columns<kOffset>(b[0], x + b_first);
    } else {
      unsigned words[4];
      ptx::load_columns<kOffset>(words, x + (b_first ^ static_cast<unsigned>(kTile * 16)));
      b[kTile][0] = words[0];
      b[kTile][1] = words[1];
      b[kTile + 1][0] = words[2];
      b[kTile + 1][1] = words[3];
      if constexpr (kTile + 2 < kB) load_b<kOffset, kTile + 2>(b, x);
    }
  }
  template <int kTile>
  __device__ static __forceinline__ void load_features_a(unsigned (&a)[kA][4], unsigned place) {
    if constexpr (kHalf) {
      unsigned words[2];
      ptx::load_matrices<0>(words, place);
      a[0][0] = Product::convert(words[0]);
      a[0][2] = Product::convert(words[1]);
      a[0][1] = a[0][3] = 0;
    } else {
      ptx::load_matrices<kTile * 16 * kRow>(a[kTile], place);
#pragma unroll
      for (int v = 0; v < 4; ++v) a[kTile][v] = Product::convert(a[kTile][v]);
    }
    if constexpr (kTile + 1 < kA) load_features_a<kTile + 1>(a, place);
  }
  template <int kTile>
  __device__ static __forceinline__ void load_features_b(unsigned (&b)[kB][2], unsigned place) {
    enum : int { kTiles = kB == 1 ? 1 : 2 };
    unsigned words[kTiles * 2];
    ptx::load_matrices<kTile * 8 * kRow>(words, place);
#pragma unroll
    for (int v = 0; v < kTiles * 2; ++v) b[kTile + v / 2][v % 2] = Product::convert(words[v]);
    if constexpr (kTile + kTiles < kB) load_features_b<kTile + kTiles>(b, place);
  }
};

/// Config names what `grad_weight` needs, the Product and warps_out, warps_in and warps_n.
template <class Config>
__device__ __forceinline__ void sddmm_mma(const ActivationPairs& pairs,
                                          typename Config::Output::Element* __restrict__ dw, int n,
                                          long long x_stride, long long dy_stride, long long z_stride,
                                          const SddmmEpilogue<Config>& ends, typename Config::Table table) {
  grad_weight<Config, SddmmMmaTile<Config>>(pairs, dw, n, x_stride, dy_stride, z_stride, ends, table);
}

}  // namespace sparsekiln
