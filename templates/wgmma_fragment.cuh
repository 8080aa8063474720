#pragma once

#include "ptx_mma.cuh"

// Which sums of a wgmma a thread has.

namespace sparsekiln {

/// Sets sums to 0, or an array of them.
__device__ __forceinline__ void clear_sums(float& sum) { sum = 0; }
__device__ __forceinline__ void clear_sums(int& sum) { sum = 0; }
template <class Sums, int kCount>
__device__ __forceinline__ void clear_sums(Sums (&sums)[kCount]) {
#pragma unroll
  for (int v = 0; v < kCount; ++v) clear_sums(sums[v]);
}

/// The first of a thread's two rows among the 64 of its warpgroup.
__device__ __forceinline__ int fragment_row(int lane) {
  return static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
}
/// A thread's sums of 64 rows are of two rows, eight apart, in turn (PTX ISA, "Register Fragments and Shared
/// Memory Matrix Layouts": D of m64nNk16). Where value `i` of one of them is among the sums.
__device__ __forceinline__ constexpr int fragment_value(int half, int i) {
  return i / 2 * 4 + half * 2 + i % 2;
}
/// The column of value `i`, where kInterleave of a thread are neighbours. kExchanges: once exchange_halves
/// has made four of two pairs.
template <int kInterleave, bool kExchanges>
__device__ __forceinline__ int fragment_column(int lane, int i) {
  const int first = i / kInterleave * (kInterleave * 4) + i % kInterleave;
  const int own = lane % 4;
  if constexpr (kExchanges) return first + own % 2 * 8 + own / 2 * kInterleave;
  return first + own * kInterleave;
}
/// Two lanes are so many apart: the first keeps `first` and gets the `first` of the other; that one
/// gets the `second` of the first, and keeps its own.
template <int kLanes>
__device__ __forceinline__ void exchange_with(int lane, float& first, float& second) {
  const bool keeps_second = lane / kLanes % 2 != 0;
  const float got = ptx::exchanged<kLanes>(keeps_second ? first : second);
  first = keeps_second ? got : first;
  second = keeps_second ? second : got;
}
/// Two lanes are neighbours: the first keeps `first` and gets the `first` of the other, whose columns follow;
/// the other lane gets and keeps `second`.
__device__ __forceinline__ void exchange_halves(int lane, float& first, float& second) {
  exchange_with<1>(lane, first, second);
}

}  // namespace sparsekiln
