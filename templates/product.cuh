#pragma once

#include "ptx_mma.cuh"

// What the tensor cores do with each type of operand.

namespace sparsekiln {

/// Operand types: what is done to fragments, and which instruction takes them.
struct F16Product {
  using Element = unsigned short;
  __device__ static __forceinline__ unsigned convert(unsigned word) { return word; }
  __device__ static __forceinline__ void mma(float (&sums)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
    ptx::mma_f16(sums, a, b);
  }
};
struct Bf16Product {
  using Element = unsigned short;
  __device__ static __forceinline__ unsigned convert(unsigned word) { return word; }
  __device__ static __forceinline__ void mma(float (&sums)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
    ptx::mma_bf16(sums, a, b);
  }
};
struct Tf32Product {
  using Element = float;
  __device__ static __forceinline__ unsigned convert(unsigned word) { return ptx::round_tf32(word); }
  __device__ static __forceinline__ void mma(float (&sums)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
    ptx::mma_tf32(sums, a, b);
  }
};

}  // namespace sparsekiln
