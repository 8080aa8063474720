#pragma once

#include "ptx.cuh"
#include "ptx_mma.cuh"

// What the tensor cores do with each type of operand.

namespace sparsekiln {

/// Operand types: what is done to fragments, and which instruction takes them. Of two elements in a word,
/// `unpack` gives the lower one.
struct F16Product {
  using Element = unsigned short;
  __device__ static __forceinline__ unsigned pack(float low, float high) { return ptx::pack_f16(low, high); }
  __device__ static __forceinline__ float unpack(unsigned bits) { return ptx::unpack_f16(bits); }
  __device__ static __forceinline__ unsigned convert(unsigned word) { return word; }
  __device__ static __forceinline__ void mma(float (&sums)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
    ptx::mma_f16(sums, a, b);
  }
};
struct Bf16Product {
  using Element = unsigned short;
  __device__ static __forceinline__ unsigned pack(float low, float high) { return ptx::pack_bf16(low, high); }
  __device__ static __forceinline__ float unpack(unsigned bits) { return __uint_as_float(bits << 16); }
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

/// A word of elements, each changed in float32 and rounded to its type: change(element, the one of `other`).
template <class Product, class Change>
__device__ __forceinline__ unsigned changed(unsigned word, unsigned other, Change change) {
  if constexpr (sizeof(typename Product::Element) == 4) {
    return __float_as_uint(change(__uint_as_float(word), __uint_as_float(other)));
  } else {
    return Product::pack(change(Product::unpack(word), Product::unpack(other)),
                         change(Product::unpack(word >> 16), Product::unpack(other >> 16)));
  }
}

}  // namespace sparsekiln
