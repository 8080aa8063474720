#pragma once

#include "swizzle.cuh"

// Where operands lie in shared memory that are read along their rows' columns: a row for each batch entry,
// kUnits × 16 bytes of its features.

namespace sparsekiln {

template <int kUnits, int kElementBytes>
struct EntryRows;

/// Of 16-bit elements, for ldmatrix: 8 neighbouring rows have any one of their units in 8 different places of
/// a line of 128 bytes, so it meets no bank conflict.
template <int kUnits>
struct EntryRows<kUnits, 2> {
  __device__ static __forceinline__ unsigned offset(unsigned row, unsigned unit) {
    if constexpr (kUnits == 1)
      return row * 16;
    else if constexpr (kUnits < 8)
      return static_cast<unsigned>(Swizzle<kUnits>::offset(row, unit));
    else
      return row * (kUnits * 16) + (unit ^ row % 8) * 16;
  }
};

/// Of floats: 4 neighbouring rows have 8 floats of the same columns in different banks, and so have as many
/// rows as fill 32 banks the columns of one block of 8 or 16.
template <int kUnits>
struct EntryRows<kUnits, 4> {
  __device__ static __forceinline__ unsigned offset(unsigned row, unsigned unit) {
    if constexpr (kUnits == 2)
      return row * 32 + unit * 16;
    else if constexpr (kUnits == 4)
      return row * 64 + (unit ^ (row & 2)) * 16;
    else
      return row * (kUnits * 16) + (unit ^ (row % 2 * 4 | (row & 2))) * 16;
  }
};

/// As they come: for reads of whole rows.
template <int kUnits>
struct PlainRows {
  __device__ static __forceinline__ unsigned offset(unsigned row, unsigned unit) {
    return row * (kUnits * 16) + unit * 16;
  }
};

}  // namespace sparsekiln
