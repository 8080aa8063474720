#pragma once

#include "product.cuh"
#include "sddmm.cuh"

// SDDMM on tensor cores, accumulated in float32. dy is A, with 16 rows per tile, and x is B, with 8 columns.
// Both are contiguous along these rows and columns, and not along k, which is the batch: ldmatrix transposes
// fragments of 16 bits, and floats are read one by one. Feature-major operands are contiguous along k, and
// ldmatrix loads the fragments of all types without transposing them. For blocks with 8 outputs, the lower
// half of A is zeros.
//
// Exact order: a chunk has tile_n batch rows; those after the last one that exists are zeros. A k-step is 16
// batch rows, or 8 of floats. The warps of batch slice s take every kBatchSlices-th k-step of each of a
// pair's chunks, from the s-th on, in ascending order; within a k-step the order is that of the hardware. The
// slices are added in ascending order.

namespace sparsekiln {

/// The accumulators of a run: a grid of warps_out × warps_in × kBatchSlices warps, each of which has a grid
/// of kA × kB tensor-core tiles (16 × 8).
template <class Config>
struct SddmmMmaTile {
  using Product = typename Config::Product;
  enum : bool { kFloats = sizeof(typename Config::Element) == 4, kHalf = Config::block_out == 8 };
  /// Rows of features are read by ldmatrix, for all types.
  template <int kUnits>
  using Rows =
      BatchRows<kUnits, Config::feature_major ? 2 : static_cast<int>(sizeof(typename Config::Element))>;
  using Shared = SharedAccumulators<Config>;
  enum : int {
    kElement = static_cast<int>(sizeof(typename Config::Element)),
    kBatchSlices = Config::warps_n,
    kA = kHalf ? 1 : Config::block_out / (16 * Config::warps_out),
    kB = Config::width * Config::block_in / (8 * Config::warps_in),
    kBatchRows = 32 / kElement,  ///< batch rows of a k-step
    kSteps = Config::chunk / (kBatchRows * kBatchSlices),
    kRowA = Config::block_out * kElement,
    kRowB = Config::width * Config::block_in * kElement,
    kRow = Config::chunk * kElement,  ///< bytes of a feature
  };
  using RowsF = Rows<kRow / 16>;
  using RowsA = Rows<kRowA / 16>;
  using RowsB = Rows<kRowB / 16>;

  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_out = static_cast<int>(threadIdx.x) / 32 % Config::warps_out;
  const int warp_in = static_cast<int>(threadIdx.x) / 32 / Config::warps_out % Config::warps_in;
  const int slice = static_cast<int>(threadIdx.x) / 32 / (Config::warps_out * Config::warps_in);
  const unsigned a_first = ptx::kept(first_a());
  const unsigned b_first = ptx::kept(first_b());
  float accumulators[kA][kB][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < kA * kB * 4; ++v) accumulators[v / 4 / kB][v / 4 % kB][v % 4] = 0;
  }

  __device__ __forceinline__ void multiply(unsigned dy, unsigned x, unsigned wanted) {
    if ((wanted & columns()) == 0) return;
    multiply_steps<0>(dy, x);
  }

  /// Adds the accumulators of one batch slice to those in shared memory; slice 0 writes them.
  __device__ __forceinline__ void put(int wanted_slice) const {
    if (slice != wanted_slice) return;
#pragma unroll
    for (int i = 0; i < kA; ++i)
#pragma unroll
      for (int j = 0; j < kB; ++j)
#pragma unroll
        for (int half = 0; half < (kHalf ? 1 : 2); ++half) {
          const unsigned place = Shared::place((warp_out * kA + i) * 16 + half * 8 + lane / 4,
                                               (warp_in * kB + j) * 8 + lane % 4 * 2);
          float pair[2] = {accumulators[i][j][half * 2], accumulators[i][j][half * 2 + 1]};
          if (wanted_slice != 0) {
            float before[2];
            ptx::load_shared(before, place);
            pair[0] += before[0];
            pair[1] += before[1];
          }
          ptx::store_shared(place, pair);
        }
  }

 private:
  /// The blocks of the run that this warp's columns belong to, one bit each.
  __device__ __forceinline__ unsigned columns() const {
    const int first = warp_in * kB * 8;
    const int last = first + kB * 8 - 1;
    return (2u << last / Config::block_in) - (1u << first / Config::block_in);
  }
  /// This lane's offset in the rows of the first k-step. For ldmatrix, matrices 0 and 1 of A are units 0 and
  /// 1 of batch rows 0 to 7, and matrices 2 and 3 those of batch rows 8 to 15. Matrices 0 and 1 of B are
  /// batch rows 0 to 7 and 8 to 15 of unit 0, and matrices 2 and 3 those of unit 1. For floats, a lane reads
  /// batch rows lane % 4 and lane % 4 + 4 of column lane / 4.
  ///
  /// Feature-major, a k-step is two units. Matrices 0 and 1 of A are features 0 to 7 and 8 to 15 of unit 0,
  /// and matrices 2 and 3 those of unit 1. Matrices 0 and 1 of B are units 0 and 1 of features 0 to 7, and
  /// matrices 2 and 3 those of features 8 to 15.
  __device__ __forceinline__ unsigned first_a() const {
    if constexpr (Config::feature_major)
      return offset<RowsF>(warp_out * kA * 16 + lane % (kHalf ? 8 : 16),
                           slice * 2 + (kHalf ? lane / 8 % 2 : lane / 16));
    const int batch_row = slice * kBatchRows;
    const int unit = warp_out * kA * 16 * kElement / 16;
    if constexpr (kFloats) return float_place<RowsA>(unit);
    if constexpr (kHalf) return offset<RowsA>(batch_row + lane % 16, 0);
    return offset<RowsA>(batch_row + lane % 8 + lane / 16 * 8, unit + lane / 8 % 2);
  }
  __device__ __forceinline__ unsigned first_b() const {
    if constexpr (Config::feature_major)
      return offset<RowsF>(warp_in * kB * 8 + lane % 8 + (kB > 1 ? lane / 16 * 8 : 0),
                           slice * 2 + lane / 8 % 2);
    const int batch_row = slice * kBatchRows;
    const int unit = warp_in * kB * 8 * kElement / 16;
    if constexpr (kFloats) return float_place<RowsB>(unit);
    return offset<RowsB>(batch_row + lane % 16, unit + (kB > 1 ? lane / 16 : 0));
  }
  template <class Of>
  __device__ __forceinline__ unsigned float_place(int unit) const {
    return offset<Of>(slice * kBatchRows + lane % 4, unit + lane / 16) +
           static_cast<unsigned>(lane) / 4 % 4 * 4;
  }
  template <class Of>
  __device__ static __forceinline__ unsigned offset(int batch_row, int unit) {
    return Of::offset(static_cast<unsigned>(batch_row), static_cast<unsigned>(unit));
  }

  // The first unit of tile t is t times a power of two, so the offset of tile t is that of tile 0 with bits
  // of t flipped: the exclusive or of the swizzle does not change that. K-steps do not change the swizzle.
  // Feature-major it is the other way round: the units of a k-step are those of the first one with bits
  // flipped, and tiles, which are whole periods of the swizzle, are constant distances apart.

  template <int kStep>
  __device__ __forceinline__ void multiply_steps(unsigned dy, unsigned x) {
    enum : int { kFirst = kStep * kBatchSlices * kBatchRows };
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
      for (int i = 0; i < kA; ++i) Product::mma(accumulators[i][j], a[i], b[j]);
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

/// Config names what `sddmm` needs, the Product, warps_out, warps_in and warps_n.
template <class Config>
__device__ __forceinline__ void sddmm_mma(const ActivationPairs& pairs, typename Config::Output::Element* dw,
                                          int n, long long x_stride, long long dy_stride, long long z_stride,
                                          const SddmmEpilogue<Config>& epilogue,
                                          typename Config::Table table) {
  sddmm<Config, SddmmMmaTile<Config>>(pairs, dw, n, x_stride, dy_stride, z_stride, epilogue, table);
}

}  // namespace sparsekiln
