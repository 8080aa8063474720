#pragma once

#include "ptx_mma.cuh"

// How wgmma reads shared memory, and which sums a thread has.

namespace sparsekiln {

/// Bytes of eight rows of `line_bytes`, within which units of 16 bytes are exchanged.
__device__ constexpr int swizzled_unit(int line_bytes) { return 8 * line_bytes; }

/// A descriptor of swizzled rows of 128 bytes, or of 64. Eight rows are followed by the next eight; where
/// rows are not along k, the next kLineBytes of their matrix are `ahead` bytes ahead (PTX ISA,
/// "Matrix-descriptor Format": the stride and the leading dimension's byte offset).
template <int kLineBytes>
__device__ __forceinline__ unsigned long long swizzled_descriptor(unsigned shared, int ahead = 0) {
  constexpr unsigned long long kSwizzled = (kLineBytes == 128 ? 1ull : 2ull) << 62;
  constexpr unsigned long long kUnit = swizzled_unit(kLineBytes);
  return kSwizzled | kUnit / 16 << 32 | ahead / 16 << 16 | (shared & 0x3ffff) / 16;
}

/// A thread's sums of 64 rows are of two rows, eight apart, in turn (PTX ISA, "Register Fragments and Shared
/// Memory Matrix Layouts": D of m64nNk16). Where value `i` of one of them is among the sums.
__device__ __forceinline__ constexpr int fragment_value(int half, int i) {
  return i / 2 * 4 + half * 2 + i % 2;
}
/// The column of value `i`, where kRun of a thread are neighbours. kExchanges: once exchange_halves has made
/// four of two pairs.
template <int kRun, bool kExchanges>
__device__ __forceinline__ int fragment_column(int lane, int i) {
  const int run = i / kRun * (kRun * 4) + i % kRun;
  const int own = lane % 4;
  if constexpr (kExchanges) return run + own % 2 * 8 + own / 2 * kRun;
  return run + own * kRun;
}
/// Two lanes are neighbours: the first keeps `first` and gets the `first` of the other, whose columns follow;
/// the other lane gets and keeps `second`.
__device__ __forceinline__ void exchange_halves(int lane, float& first, float& second) {
  const bool keeps_second = lane % 2 != 0;
  const float got = ptx::exchanged<1>(keeps_second ? first : second);
  first = keeps_second ? got : first;
  second = keeps_second ? second : got;
}

}  // namespace sparsekiln
