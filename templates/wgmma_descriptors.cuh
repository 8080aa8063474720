#pragma once

#include "tma_rings.cuh"
#include "wgmma_fragment.cuh"

// Descriptors of wgmma's operands in the stages of shared memory (PTX ISA, "Matrix-descriptor Format").
//
// NOTES: a wgmma takes its two descriptors from four uniform registers in a row. Left alone, ptxas makes them
// between one wgmma and the next, all in the same registers. Three things keep the products of a chunk
// together (bench/sass.py counts them): descriptors are made before the wait for what they describe, and
// ptxas does not move them past its branches; each is opaque, so that it is made by one addition; and each
// product has a pair of its own, since one that two products share is copied for the second.

namespace sparsekiln {

/// The value, which the compiler then takes for unknown, and computes here rather than where it is used.
__device__ __forceinline__ unsigned computed_here(unsigned value) {
  asm volatile("" : "+r"(value));
  return value;
}
__device__ __forceinline__ unsigned long long computed_here(unsigned long long value) {
  asm volatile("" : "+l"(value));
  return value;
}

/// The descriptors of one chunk: for each step of 32 bytes along k, and each 64 batch rows of a warpgroup.
template <class Config, int kSteps, int kSubtiles>
class WgmmaDescriptors {
 public:
  using Rings = TmaRings<Config>;

  unsigned long long x[kSteps][kSubtiles];
  unsigned long long w[kSteps][kSubtiles];

  /// For the calling warpgroup. Addresses are values of one lane, so that descriptors are uniform; for W a
  /// lane for each subtile, so that ptxas does not know that they are the same.
  __device__ __forceinline__ explicit WgmmaDescriptors(const Rings& rings)
      : first_x(__shfl_sync(0xffffffff, rings.x(0) + threadIdx.x / 128 * (kSubtiles * kSubtileBytes), 0)) {
#pragma unroll
    for (int i = 0; i < kSubtiles; ++i) first_w[i] = __shfl_sync(0xffffffff, rings.w(0), i);
  }

  __device__ __forceinline__ void point_x_at(int place) {
    const unsigned long long first =
        computed_here(swizzled_descriptor<Rings::kLineBytes>(first_x + place * Rings::kBytesX));
#pragma unroll
    for (int i = 0; i < kSteps * kSubtiles; ++i)
      x[i / kSubtiles][i % kSubtiles] =
          computed_here(first + i / kSubtiles * kAlongRows + i % kSubtiles * (kSubtileBytes / 16));
  }
  __device__ __forceinline__ void point_w_at(int place) {
#pragma unroll
    for (int i = 0; i < kSubtiles; ++i) {
      const unsigned long long first = computed_here(swizzled_descriptor<Rings::kLineBytes>(
          first_w[i] + place * Rings::kBytesW, Config::by_columns ? int{Rings::kBytesBox} : 0));
#pragma unroll
      for (int step = 0; step < kSteps; ++step) w[step][i] = computed_here(first + step * kStepW);
    }
  }

 private:
  enum : int {
    kSubtileBytes = 64 * Rings::kLineBytes,
    // From one step to the next, as descriptors count: in units of 16 bytes.
    kAlongRows = 32 / 16,
    kStepW = Config::by_columns ? 2 * swizzled_unit(Rings::kLineBytes) / 16 : int{kAlongRows},
  };

  const unsigned first_x;
  unsigned first_w[kSubtiles];
};

}  // namespace sparsekiln
