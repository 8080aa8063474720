#pragma once

#include "ptx.cuh"
#include "ptx_mma.cuh"

// Operations on each operand type, mostly of the tensor cores.

namespace sparsekiln {

/// Operand types: how fragments are converted, which instruction multiplies them, the type of sums, and after
/// how many elements of k CUDA cores add up what tensor cores have summed, at the latest (kPromoted; 0:
/// never). `unpack` returns the lower of the two elements in a word.
struct F16Product {
  using Element = unsigned short;
  using Sum = float;
  enum : int { kPromoted = 0 };
  __device__ static __forceinline__ unsigned pack(float low, float high) { return ptx::pack_f16(low, high); }
  __device__ static __forceinline__ float unpack(unsigned bits) { return ptx::unpack_f16(bits); }
  __device__ static __forceinline__ unsigned convert(unsigned word) { return word; }
  __device__ static __forceinline__ void mma(float (&accumulators)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
    ptx::mma_f16(accumulators, a, b);
  }
};
struct Bf16Product {
  using Element = unsigned short;
  using Sum = float;
  enum : int { kPromoted = 0 };
  __device__ static __forceinline__ unsigned pack(float low, float high) { return ptx::pack_bf16(low, high); }
  __device__ static __forceinline__ float unpack(unsigned bits) { return __uint_as_float(bits << 16); }
  __device__ static __forceinline__ unsigned convert(unsigned word) { return word; }
  __device__ static __forceinline__ void mma(float (&accumulators)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
    ptx::mma_bf16(accumulators, a, b);
  }
};
struct Tf32Product {
  using Element = float;
  using Sum = float;
  enum : int { kPromoted = 0 };
  __device__ static __forceinline__ unsigned convert(unsigned word) { return ptx::round_tf32(word); }
  __device__ static __forceinline__ void mma(float (&accumulators)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
    ptx::mma_tf32(accumulators, a, b);
  }
};

/// The same, of words that were rounded before.
struct RoundedTf32Product : Tf32Product {
  __device__ static __forceinline__ unsigned convert(unsigned word) { return word; }
};

/// For CUDA cores: how words of shared memory are multiplied. The types of 8 bits that follow say so, too,
/// and how an element becomes such a word (`widen`).
struct F32Product {
  using Element = float;
  using Sum = float;
  __device__ static __forceinline__ float multiply_add(float a, float b, float sum) {
    return __fmaf_rn(a, b, sum);
  }
};

/// Elements of 8 bits, which nothing changes between memory and the instruction.
///
/// Tensor cores add products of 8-bit floats with 13 bits of fraction (H100 and RTX 40: Khattak & Mikaitis
/// 2025, Accurate Models of NVIDIA Tensor Cores, arXiv:2512.07004). Sums are therefore added in float32 by
/// CUDA cores: after each instruction here, which takes no more registers; where that would cost too much,
/// after kPromoted elements of k.
struct Float8Product {
  using Element = unsigned char;
  using Sum = float;
  enum : int { kPromoted = 128 };
  __device__ static __forceinline__ unsigned convert(unsigned word) { return word; }
  __device__ static __forceinline__ float multiply_add(float a, float b, float sum) {
    return __fmaf_rn(a, b, sum);
  }

 protected:
  __device__ static __forceinline__ void add(float (&accumulators)[4], const float (&products)[4]) {
#pragma unroll
    for (int v = 0; v < 4; ++v) accumulators[v] += products[v];
  }
};
struct E4m3Product : Float8Product {
  __device__ static __forceinline__ float widen(unsigned byte) {
    const unsigned magnitude = byte & 0x7f;
    const unsigned sign = (byte & 0x80) << 24;
    if (magnitude == 0x7f) return __uint_as_float(sign | 0x7fc00000);
    // A binary32 of the same bits has a bias that is larger by 120; it may be subnormal.
    return __uint_as_float(sign | magnitude << 20) * 0x1p120f;
  }
  __device__ static __forceinline__ void mma(float (&accumulators)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
    float products[4];
    ptx::multiply_e4m3(products, a, b);
    add(accumulators, products);
  }
};
struct E5m2Product : Float8Product {
  __device__ static __forceinline__ float widen(unsigned byte) {
    const unsigned magnitude = byte & 0x7f;
    const unsigned sign = (byte & 0x80) << 24;
    if (magnitude >= 0x7c) return __uint_as_float(sign | 0x7f800000 | (magnitude & 3) << 21);
    return __uint_as_float(sign | magnitude << 21) * 0x1p112f;  // as above
  }
  __device__ static __forceinline__ void mma(float (&accumulators)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
    float products[4];
    ptx::multiply_e5m2(products, a, b);
    add(accumulators, products);
  }
};
struct I8Product {
  using Element = signed char;
  using Sum = int;
  enum : int { kPromoted = 0 };
  /// The bits of an int.
  __device__ static __forceinline__ float widen(unsigned byte) {
    return __int_as_float(static_cast<signed char>(byte));
  }
  __device__ static __forceinline__ int multiply_add(float a, float b, int sum) {
    const auto product = static_cast<unsigned>(__float_as_int(a) * __float_as_int(b));
    return static_cast<int>(static_cast<unsigned>(sum) + product);
  }
  __device__ static __forceinline__ unsigned convert(unsigned word) { return word; }
  __device__ static __forceinline__ void mma(int (&accumulators)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
    ptx::mma_s8(accumulators, a, b);
  }
};

/// Changes each element of a word in float32 and rounds it to its type: change(element, the element of
/// `other`).
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
