#pragma once

// The layout of the tensor cores' operands in shared memory.

namespace sparsekiln {

/// Rows of kUnits × 16 bytes, where kUnits is 2, 4 or 8. A line of 128 bytes, which the banks serve at once,
/// has 8 / kUnits rows. The position of a unit in its line is combined with the number of the line by
/// exclusive or. The units with the same number in 8 neighboring rows are then at 8 different positions, so
/// ldmatrix meets no bank conflict, and neither do 8 threads that write the units of one line.
template <int kUnits>
struct Swizzle {
  enum : int { kRowsPerLine = 8 / kUnits };

  /// The byte offset of unit `unit` of row `row`.
  __device__ static __forceinline__ int offset(unsigned row, unsigned unit) {
    const unsigned line = row / kRowsPerLine;
    const unsigned place = row % kRowsPerLine * kUnits + unit;
    return static_cast<int>(line * 128 + (place ^ (line % kUnits)) * 16);
  }
  /// `first` is the offset, from a multiple of 128 on, of a unit in one of the first kRows rows. The same
  /// unit in the row kPass × kRows further down is at flipped(first) plus the bytes of kPass × kRows rows,
  /// which are a constant of the instruction, even where kRows is half a period of the swizzle.
  template <int kRows, int kPass>
  __device__ static __forceinline__ unsigned flipped(unsigned first) {
    static_assert(kRows % 4 == 0, "a pass copies whole halves of the swizzle's period");
    return kRows / kRowsPerLine % kUnits != 0 && kPass % 2 != 0 ? first ^ 64 : first;
  }
  /// The address of unit u + 2 · step in the same row, where `first` is the address of unit u, which is 0 or
  /// 1. Rows start at a multiple of 128, so the exclusive or changes only the position within the row.
  __device__ static __forceinline__ unsigned ahead(unsigned first, int step) { return first ^ (step * 32); }
};

/// The largest power of two that divides a number.
template <int kNumber>
struct PowerIn {
  enum : int { kValue = kNumber & -kNumber };
};

/// Rows of kUnits × 16 bytes, one row for each k, where the tensor cores read columns. The position of a unit
/// within its group of kGroup units is combined by exclusive or with a number that depends on the row. What
/// one access reads is then in different banks:
///  matrices of 16-bit elements: the units with the same number in 8 neighboring rows
///  pairs of units, of floats (kPairs): the same pair in 4 neighboring rows
/// 8 threads that write 8 units in memory order meet no conflict either, since a group is within one line of
/// 128 bytes. A row starts at a multiple of its groups, so the exclusive or changes only the position within
/// the group.
///
/// kWarpUnits: units from the columns of one warp to those of the next. Where the largest groups would extend
/// over columns of two warps, groups are smaller, and reads may meet conflicts.
template <int kUnits, int kWarpUnits, bool kPairs>
struct ColumnSwizzle {
  enum : int {
    kMost = PowerIn<kUnits>::kValue < 8 ? PowerIn<kUnits>::kValue : 8,
    kOfWarp = PowerIn<kWarpUnits>::kValue,
    kGroup = kWarpUnits % kMost == 0 || kOfWarp == kWarpUnits ? kMost : kOfWarp,
    kPlaces = kPairs ? (kGroup + 1) / 2 : int{kGroup},  ///< positions that one read can have within a group
    kPeriod = kPairs ? 4 : 8,                           ///< rows that are read at once
    kSame = kPeriod / kPlaces,                          ///< neighboring rows with the same mask
  };

  /// What the positions of a row's units are combined with by exclusive or.
  __device__ static constexpr __forceinline__ unsigned mask(unsigned row) {
    return row / kSame % kPlaces * (kPairs ? 2 : 1);
  }
  /// The byte offset of unit `unit` of row `row`.
  __device__ static __forceinline__ unsigned offset(unsigned row, unsigned unit) {
    return (row * kUnits + (unit ^ mask(row))) * 16;
  }
  /// The address of the unit kAhead units further on in the same row. `unit` is the address of one of the
  /// first 16 columns of a warp, and kAhead is a multiple of as many columns.
  template <int kAhead>
  __device__ static __forceinline__ unsigned ahead(unsigned unit) {
    enum : int { kWithin = kAhead % kGroup, kGroups = kAhead - kWithin };
    return (unit ^ static_cast<unsigned>(kWithin * 16)) + static_cast<unsigned>(kGroups * 16);
  }
};

/// The order of W's rows in shared memory. It is chosen so that the accumulators of one thread are
/// kInterleave consecutive outputs, although the tensor core gives each thread pairs. Within kInterleave ·
/// kLanes rows, output lane · kInterleave + 2 · tile + half is in row
///  16 · tile + 8 · half + lane   of A, kLanes = 8: a thread has rows `lane` and `lane` + 8 of each tile
///  8 · tile + 2 · lane + half    of B, kLanes = 4: a thread has columns 2 · lane, + 1 of each tile
template <bool kWeightA, int kInterleave>
struct RowOrder {
  enum : int { kLanes = kWeightA ? 8 : 4, kSpan = kInterleave * kLanes };

  /// The output in a row of shared memory.
  __device__ static constexpr __forceinline__ int output(int of_row) {
    const auto row = static_cast<unsigned>(of_row);
    const unsigned within = row % kSpan;
    const unsigned tile = kWeightA ? within / 16 : within / 8;
    const unsigned half = kWeightA ? within / 8 % 2 : within % 2;
    const unsigned lane = kWeightA ? within % 8 : within % 8 / 2;
    return static_cast<int>(row - within + lane * kInterleave + 2 * tile + half);
  }
  /// The output in the row `pass` × kRows below one of the first kRows rows, less the output in that row. The
  /// order is a permutation of the bits of a row, so the result is a constant if kRows is a power of two.
  template <int kRows>
  __device__ static __forceinline__ int below(int first, int pass) {
    if constexpr ((kRows & (kRows - 1)) == 0) return output(pass * kRows);
    return output(first + pass * kRows) - output(first);
  }
};

}  // namespace sparsekiln
