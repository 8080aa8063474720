#pragma once

#include "swizzle.cuh"

// The layout in shared memory of operands that are read along columns: each batch row has kUnits × 16 bytes
// of its features.

namespace sparsekiln {

template <int kUnits, int kElementBytes>
struct BatchRows;

/// For elements of 16 bits, read by ldmatrix: the units with the same number in 8 neighboring rows are in 8
/// different places of a line of 128 bytes, so reading them meets no bank conflict.
template <int kUnits>
struct BatchRows<kUnits, 2> {
  __device__ static __forceinline__ unsigned offset(unsigned row, unsigned unit) {
    if constexpr (kUnits == 1)
      return row * 16;
    else if constexpr (kUnits < 8)
      return static_cast<unsigned>(Swizzle<kUnits>::offset(row, unit));
    else
      return row * (kUnits * 16) + (unit ^ row % 8) * 16;
  }
};

/// For floats: 8 floats of the same columns in 4 neighboring rows are in different banks. The columns of one
/// block of 8 or 16 are in different banks in as many rows as fill 32 banks.
template <int kUnits>
struct BatchRows<kUnits, 4> {
  __device__ static __forceinline__ unsigned offset(unsigned row, unsigned unit) {
    if constexpr (kUnits == 2)
      return row * 32 + unit * 16;
    else if constexpr (kUnits == 4)
      return row * 64 + (unit ^ (row & 2)) * 16;
    else
      return row * (kUnits * 16) + (unit ^ (row % 2 * 4 | (row & 2))) * 16;
  }
};

/// Rows without a swizzle, for reads of whole rows.
template <int kUnits>
struct PlainRows {
  __device__ static __forceinline__ unsigned offset(unsigned row, unsigned unit) {
    return row * (kUnits * 16) + unit * 16;
  }
};

}  // namespace sparsekiln
