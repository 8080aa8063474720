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

/// The number of a thread's lane.
__device__ __forceinline__ int own_lane() { return static_cast<int>(threadIdx.x) % 32; }
/// The first of a thread's two rows among the 64 of its warpgroup.
__device__ __forceinline__ int fragment_row(int lane) {
  return static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
}
/// A thread's sums of 64 rows are of two rows, eight apart, in turn (PTX ISA, "Register Fragments and Shared
/// Memory Matrix Layouts": D of m64nNk16). Where value `i` of one of them is among the sums.
__device__ __forceinline__ constexpr int fragment_value(int half, int i) {
  return i / 2 * 4 + half * 2 + i % 2;
}
/// Values of one of the rows, from value `first` on.
template <int kSums, int kRun>
__device__ __forceinline__ void copy_values(const float (&sums)[kSums], int half, int first,
                                            float (&values)[kRun]) {
#pragma unroll
  for (int v = 0; v < kRun; ++v) values[v] = sums[fragment_value(half, first + v)];
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
/// Makes neighbours, as fragment_column has them, of a thread's values of a row: two are already, and four
/// once lanes have exchanged halves.
__device__ __forceinline__ void gather_columns(int, float (&)[2]) {}
__device__ __forceinline__ void gather_columns(int lane, float (&values)[4]) {
  exchange_halves(lane, values[0], values[2]);
  exchange_halves(lane, values[1], values[3]);
}

/// Two columns of a row for each of two lanes, which are 4 apart, become two rows of a column; or four of
/// four.
__device__ __forceinline__ void transpose_values(int lane, float (&values)[2]) {
  exchange_with<4>(lane, values[0], values[1]);
}
__device__ __forceinline__ void transpose_values(int lane, float (&values)[4]) {
  exchange_with<4>(lane, values[0], values[1]);
  exchange_with<4>(lane, values[2], values[3]);
  exchange_with<8>(lane, values[0], values[2]);
  exchange_with<8>(lane, values[1], values[3]);
}

/// Which of the kRun lanes a lane is whose rows become neighbours, and which column it then has.
template <int kRun>
__device__ __forceinline__ int transposed_turn(int lane) {
  return lane / 4 % kRun;
}
template <int kRun>
__device__ __forceinline__ int transposed_column(int lane) {
  const int turn = transposed_turn<kRun>(lane);
  return turn / 2 * 8 + lane % 4 * 2 + turn % 2;
}

}  // namespace sparsekiln
