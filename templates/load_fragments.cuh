#pragma once

#include "product.cuh"
#include "ptx_mma.cuh"
#include "swizzle.cuh"

// Fragments for the tensor cores, read from an operand's tile in shared memory. Tiles of A have 16 rows,
// tiles of B have 8 columns; a k-step is 32 bytes of k. place_a() and place_b() give a lane's first address
// within a stage. load_a and load_b take that address plus the address of the stage, and read the fragments
// of kTiles tiles of k-step kStep, starting kFirst bytes further on.

namespace sparsekiln {

/// Fragments of an operand whose rows are contiguous along k, kUnits × 16 bytes each.
template <class Product, int kUnits, int kTiles>
struct RowFragments {
  using Rows = Swizzle<kUnits>;
  enum : int { kRowBytes = kUnits * 16 };

  /// For A, matrices 0 and 1 are rows 0 to 7 and 8 to 15 of the first unit, and matrices 2 and 3 the same
  /// rows of the second unit. For B, matrices 0 and 1 are both units of columns 0 to 7, and matrices 2 and 3
  /// both units of columns 8 to 15. `first`: the warp's first row.
  __device__ static __forceinline__ unsigned place_a(int first, int lane) {
    return static_cast<unsigned>(Rows::offset(first + lane % 16, lane / 16));
  }
  __device__ static __forceinline__ unsigned place_b(int first, int lane) {
    return static_cast<unsigned>(
        Rows::offset(first + lane % 8 + (kTiles > 1 ? lane / 16 * 8 : 0), lane / 8 % 2));
  }
  template <int kFirst, int kStep>
  __device__ static __forceinline__ void load_a(unsigned (&a)[kTiles][4], unsigned shared) {
    load_rows_a<kFirst, 0>(a, Rows::ahead(shared, kStep));
  }
  template <int kFirst, int kStep>
  __device__ static __forceinline__ void load_b(unsigned (&b)[kTiles][2], unsigned shared) {
    load_rows_b<kFirst, 0>(b, Rows::ahead(shared, kStep));
  }

 private:
  template <int kFirst, int kTile>
  __device__ static __forceinline__ void load_rows_a(unsigned (&a)[kTiles][4], unsigned shared) {
    ptx::load_matrices<kFirst + kTile * (16 * kRowBytes)>(a[kTile], shared);
#pragma unroll
    for (int v = 0; v < 4; ++v) a[kTile][v] = Product::convert(a[kTile][v]);
    if constexpr (kTile + 1 < kTiles) load_rows_a<kFirst, kTile + 1>(a, shared);
  }
  template <int kFirst, int kTile>
  __device__ static __forceinline__ void load_rows_b(unsigned (&b)[kTiles][2], unsigned shared) {
    if constexpr (kTile + 1 < kTiles) {
      unsigned words[4];
      ptx::load_matrices<kFirst + kTile * (8 * kRowBytes)>(words, shared);
#pragma unroll
      for (int v = 0; v < 4; ++v) b[kTile + v / 2][v % 2] = Product::convert(words[v]);
    } else {
      unsigned words[2];
      ptx::load_matrices<kFirst + kTile * (8 * kRowBytes)>(words, shared);
      b[kTile][0] = Product::convert(words[0]);
      b[kTile][1] = Product::convert(words[1]);
    }
    if constexpr (kTile + 2 < kTiles) load_rows_b<kFirst, kTile + 2>(b, shared);
  }
};

/// Fragments of an operand in which each k is a row of kWide contiguous elements; a warp has `kColumns`
/// columns. It is read in squares of 16 columns × a k-step: a tile of A, or two tiles of B.
///
/// Matrix loads transpose elements of 16 bits, and the columns of a square are in order. Floats are read
/// without transposing, a pair of columns at once: columns 2 · i and 2 · i + 1 of a square are rows i and i +
/// 8 of A, or column i of the first and second tile of B.
template <class Product, int kWide, int kColumns, bool kA>
struct ColumnFragments {
  enum : bool { kWords = sizeof(typename Product::Element) == 4 };
  enum : int {
    kTiles = kColumns / (kA ? 16 : 8),
    kElements = 16 / int{sizeof(typename Product::Element)},  ///< elements of a unit
    kUnits = kWide / kElements,
    kRowBytes = kUnits * 16,
    kStepBytes = 2 * kElements * kRowBytes,
    kSquareUnits = 16 / kElements,
  };
  using Places = ColumnSwizzle<kUnits, kColumns / kElements, kWords>;

  __device__ static __forceinline__ unsigned place_a(int first, int lane) { return place(first, lane); }
  __device__ static __forceinline__ unsigned place_b(int first, int lane) { return place(first, lane); }
  template <int kFirst, int kStep, int kTile = 0>
  __device__ static __forceinline__ void load_a(unsigned (&a)[kTiles][4], unsigned shared) {
    unsigned words[2][2];
    load_square<kFirst + kStep * kStepBytes, kTile>(words, shared);
#pragma unroll
    for (int v = 0; v < 4; ++v) a[kTile][v] = words[v % 2][v / 2];
    if constexpr (kTile + 1 < kTiles) load_a<kFirst, kStep, kTile + 1>(a, shared);
  }
  template <int kFirst, int kStep, int kTile = 0>
  __device__ static __forceinline__ void load_b(unsigned (&b)[kTiles][2], unsigned shared) {
    if constexpr (kTile + 1 < kTiles) {
      unsigned words[2][2];
      load_square<kFirst + kStep * kStepBytes, kTile / 2>(words, shared);
#pragma unroll
      for (int v = 0; v < 4; ++v) b[kTile + v / 2][v % 2] = words[v / 2][v % 2];
    } else {
      load_half<kFirst + kStep * kStepBytes, kTile / 2>(b[kTile], shared);
    }
    if constexpr (kTile + 2 < kTiles) load_b<kFirst, kStep, kTile + 2>(b, shared);
  }

 private:
  enum : bool { kOnlyHalf = kTiles == 1 && !kA };  ///< half a square, and no whole one

  /// Matrices 0 and 1 are the first and second half of a k-step's rows for columns 0 to 7; matrices 2 and 3
  /// are the same for columns 8 to 15. For floats, a lane reads row lane % 4 and the row four after it.
  __device__ static __forceinline__ unsigned place(int first, int lane) {
    if constexpr (kWords) {
      const int column = first + (kOnlyHalf ? lane / 4 : lane / 4 * 2);
      return Places::offset(lane % 4, column / 4) + static_cast<unsigned>(column % 4 * 4);
    } else {
      return Places::offset(lane % 16, first / 8 + (kOnlyHalf ? 0 : lane / 16));
    }
  }
  /// [half of the columns][half of the k-step]
  template <int kOffset, int kSquare>
  __device__ static __forceinline__ void load_square(unsigned (&words)[2][2], unsigned shared) {
    const unsigned from = Places::template ahead<kSquare * kSquareUnits>(shared);
    if constexpr (kWords) {
      ptx::load_words<kOffset>(words[0][0], words[1][0], from);
      ptx::load_words<kOffset + 4 * kRowBytes>(words[0][1], words[1][1], from);
    } else {
      unsigned loaded[4];
      ptx::load_columns<kOffset>(loaded, from);
#pragma unroll
      for (int v = 0; v < 4; ++v) words[v / 2][v % 2] = loaded[v];
    }
#pragma unroll
    for (int v = 0; v < 4; ++v) words[v / 2][v % 2] = Product::convert(words[v / 2][v % 2]);
  }
  /// The first 8 columns of a square, where they are the last of a warp.
  template <int kOffset, int kSquare>
  __device__ static __forceinline__ void load_half(unsigned (&words)[2], unsigned shared) {
    const unsigned from = Places::template ahead<kSquare * kSquareUnits>(shared);
    if constexpr (!kWords) {
      ptx::load_columns<kOffset>(words, from);
    } else if constexpr (kOnlyHalf) {
      ptx::load_word<kOffset>(words[0], from);
      ptx::load_word<kOffset + 4 * kRowBytes>(words[1], from);
    } else {
      // Lanes address pairs of columns in a square, but here each lane reads one column of half as many.
      static_assert(!kWords || kOnlyHalf, "a warp has whole squares of floats, or half of one");
    }
    words[0] = Product::convert(words[0]);
    words[1] = Product::convert(words[1]);
  }
};

}  // namespace sparsekiln
