#pragma once

// Where operands of the tensor cores lie in shared memory.

namespace sparsekiln {

/// Rows of kUnits × 16 bytes (2, 4 or 8 units), 8 / kUnits of them in each line of 128 bytes, which is what
/// the banks serve at once. The units of a line change places by an exclusive or with the line's number: 8
/// neighbouring rows then have any one of their units in 8 different places, so ldmatrix meets no bank
/// conflict, and neither do 8 threads that write the units of one line.
template <int kUnits>
struct Swizzle {
  enum : int { kRowsPerLine = 8 / kUnits };

  /// Of unit `unit` of row `row`, in bytes.
  __device__ static __forceinline__ int offset(unsigned row, unsigned unit) {
    const unsigned line = row / kRowsPerLine;
    const unsigned place = row % kRowsPerLine * kUnits + unit;
    return static_cast<int>(line * 128 + (place ^ (line % kUnits)) * 16);
  }
  /// Rows that are `pass` × kRows below one among the first kRows, whose offset (from a multiple of 128 on)
  /// is `first`, are at turned(first) + pass × kRows rows: even where kRows is half a period of the swizzle,
  /// they differ by a constant alone.
  template <int kRows, int kPass>
  __device__ static __forceinline__ unsigned turned(unsigned first) {
    static_assert(kRows % 4 == 0, "a pass copies whole halves of the swizzle's period");
    return kRows / kRowsPerLine % kUnits != 0 && kPass % 2 != 0 ? first ^ 64 : first;
  }
  /// The address of unit + 2 · step in the same row, where `first` is that of unit 0 or 1. Rows begin at a
  /// multiple of 128, so that the exclusive or does not touch where they do.
  __device__ static __forceinline__ unsigned ahead(unsigned first, int step) { return first ^ (step * 32); }
};

/// The largest power of two that divides a number.
template <int kNumber>
struct PowerIn {
  enum : int { kValue = kNumber & -kNumber };
};

/// Rows of kUnits × 16 bytes, one for each k, of which the tensor cores want columns. The units of a row
/// change places by an exclusive or with a number that the row turns to, within groups of kGroup units. What
/// one access reads then lies in different banks:
///   matrices of 16-bit elements: any one unit of 8 neighbouring rows
///   pairs of units, of floats (kPairs): any pair of 4 neighbouring rows
/// and 8 threads that write 8 units in the order of memory meet no conflict either, for a group lies in one
/// line of 128 bytes. A row begins at a multiple of its groups, so the exclusive or does not touch where.
///
/// kWarpUnits: from those of one warp's columns to those of the next. Where groups of all that the rows could
/// have would cut across them, groups are smaller, and reading may meet conflicts.
template <int kUnits, int kWarpUnits, bool kPairs>
struct ColumnSwizzle {
  enum : int {
    kMost = PowerIn<kUnits>::kValue < 8 ? PowerIn<kUnits>::kValue : 8,
    kOfWarp = PowerIn<kWarpUnits>::kValue,
    kGroup = kWarpUnits % kMost == 0 || kOfWarp == kWarpUnits ? kMost : kOfWarp,
    kPlaces = kPairs ? (kGroup + 1) / 2 : int{kGroup},  ///< that what is read may have within a group
    kPeriod = kPairs ? 4 : 8,                           ///< rows that are read at once
    kSame = kPeriod / kPlaces,                          ///< neighbouring rows that turn alike
  };

  /// What units of a row change places by.
  __device__ static constexpr __forceinline__ unsigned turn(unsigned row) {
    return row / kSame % kPlaces * (kPairs ? 2 : 1);
  }
  /// Of unit `unit` of row `row`, in bytes.
  __device__ static __forceinline__ unsigned offset(unsigned row, unsigned unit) {
    return (row * kUnits + (unit ^ turn(row))) * 16;
  }
  /// The address of a unit kAhead units further in the same row, where `unit` is the address of one of the
  /// first 16 columns of a warp and kAhead is a multiple of those.
  template <int kAhead>
  __device__ static __forceinline__ unsigned ahead(unsigned unit) {
    enum : int { kWithin = kAhead % kGroup, kGroups = kAhead - kWithin };
    return (unit ^ static_cast<unsigned>(kWithin * 16)) + static_cast<unsigned>(kGroups * 16);
  }
};

/// The order of W's rows in shared memory, chosen so that the sums of one thread are kRun neighbouring
/// outputs although the tensor core deals them out in pairs. Within kRun · kLanes rows, output
/// lane · kRun + 2 · tile + half goes to row
///   16 · tile + 8 · half + lane   of A, kLanes = 8: a thread has rows `lane` and `lane` + 8 of each tile
///   8 · tile + 2 · lane + half    of B, kLanes = 4: a thread has columns 2 · lane, + 1 of each tile
template <bool kWeightA, int kRun>
struct RowOrder {
  enum : int { kLanes = kWeightA ? 8 : 4, kSpan = kRun * kLanes };

  /// The output that lies in a row of shared memory.
  __device__ static constexpr __forceinline__ int output(int of_row) {
    const auto row = static_cast<unsigned>(of_row);
    const unsigned within = row % kSpan;
    const unsigned tile = kWeightA ? within / 16 : within / 8;
    const unsigned half = kWeightA ? within / 8 % 2 : within % 2;
    const unsigned lane = kWeightA ? within % 8 : within % 8 / 2;
    return static_cast<int>(row - within + lane * kRun + 2 * tile + half);
  }
  /// Output of the row that is `pass` × kRows below one among the first kRows, less the output of that. The
  /// order is a permutation of a row's bits, so for a power of two it is a constant.
  template <int kRows>
  __device__ static __forceinline__ int below(int first, int pass) {
    if constexpr ((kRows & (kRows - 1)) == 0) return output(pass * kRows);
    return output(first + pass * kRows) - output(first);
  }
};

}  // namespace sparsekiln
