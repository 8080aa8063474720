#pragma once

#include "ptx.cuh"

// Element types of y: how neighbouring sums become elements. A run is aligned to its own size.

namespace sparsekiln {

struct F32Output {
  using Element = float;
  __device__ static __forceinline__ void write(float* y, const float (&run)[1]) { *y = run[0]; }
  template <int kRun>
  __device__ static __forceinline__ void write(float* y, const float (&run)[kRun]) {
    ptx::store_global(y, run);
  }
};

/// 16-bit types, two of which fill a word: Type has pack(low, high).
template <class Type>
struct PackedOutput {
  using Element = unsigned short;
  __device__ static __forceinline__ void write(Element* y, const float (&run)[1]) {
    *y = static_cast<Element>(Type::pack(run[0], 0));
  }
  __device__ static __forceinline__ void write(Element* y, const float (&run)[2]) {
    *reinterpret_cast<unsigned*>(y) = Type::pack(run[0], run[1]);
  }
  template <int kRun>
  __device__ static __forceinline__ void write(Element* y, const float (&run)[kRun]) {
    unsigned words[kRun / 2];
#pragma unroll
    for (int v = 0; v < kRun / 2; ++v) words[v] = Type::pack(run[2 * v], run[2 * v + 1]);
    ptx::store_global(y, words);
  }
};
struct F16Output : PackedOutput<F16Output> {
  __device__ static __forceinline__ unsigned pack(float low, float high) { return ptx::pack_f16(low, high); }
};
struct Bf16Output : PackedOutput<Bf16Output> {
  __device__ static __forceinline__ unsigned pack(float low, float high) { return ptx::pack_bf16(low, high); }
};

}  // namespace sparsekiln
