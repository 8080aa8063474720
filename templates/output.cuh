#pragma once

#include "ptx.cuh"

// Element types of y: how consecutive float32 results become elements, and how elements of y, of a residual
// or of a bias become floats. A run is aligned to its own size. Where y is written past L2 (kPast), runs of 4
// bytes and more are.

namespace sparsekiln {

/// kPast: the words are the first to leave L2.
template <bool kPast, int kWords>
__device__ __forceinline__ void write_words(void* y, const unsigned (&words)[kWords]) {
  if constexpr (kPast)
    ptx::store_past(y, words);
  else
    ptx::store_global(y, words);
}

struct F32Output {
  using Element = float;
  enum : bool { kSums = false };  ///< what is written is the sums, which no epilogue has changed
  template <bool kPast = false>
  __device__ static __forceinline__ void write(float* y, const float (&run)[1]) {
    *y = run[0];
  }
  template <bool kPast = false, int kRun>
  __device__ static __forceinline__ void write(float* y, const float (&run)[kRun]) {
    unsigned words[kRun];
#pragma unroll
    for (int v = 0; v < kRun; ++v) words[v] = __float_as_uint(run[v]);
    write_words<kPast>(y, words);
  }
  __device__ static __forceinline__ float read(const float* from) { return *from; }
  template <int kRun>
  __device__ static __forceinline__ void read(const float* from, float (&run)[kRun]) {
    ptx::load_global(from, run);
  }
};

/// Types of 16 bits, two of which fill a word. Type has pack(low, high), and unpack(element), which returns a
/// float.
template <class Type>
struct PackedOutput {
  using Element = unsigned short;
  enum : bool { kSums = false };
  template <bool kPast = false>
  __device__ static __forceinline__ void write(Element* y, const float (&run)[1]) {
    *y = static_cast<Element>(Type::pack(run[0], 0));
  }
  template <bool kPast = false>
  __device__ static __forceinline__ void write(Element* y, const float (&run)[2]) {
    const unsigned words[1] = {Type::pack(run[0], run[1])};
    write_words<kPast>(y, words);
  }
  template <bool kPast = false, int kRun>
  __device__ static __forceinline__ void write(Element* y, const float (&run)[kRun]) {
    unsigned words[kRun / 2];
#pragma unroll
    for (int v = 0; v < kRun / 2; ++v) words[v] = Type::pack(run[2 * v], run[2 * v + 1]);
    write_words<kPast>(y, words);
  }
  __device__ static __forceinline__ float read(const Element* from) { return Type::unpack(*from); }
  __device__ static __forceinline__ void read(const Element* from, float (&run)[1]) { run[0] = read(from); }
  template <int kRun>
  __device__ static __forceinline__ void read(const Element* from, float (&run)[kRun]) {
    unsigned words[kRun / 2];
    ptx::load_global(from, words);
#pragma unroll
    for (int v = 0; v < kRun; ++v) run[v] = Type::unpack(words[v / 2] >> (v % 2 * 16));
  }
};
/// `unpack` reads only the lower 16 bits.
struct F16Output : PackedOutput<F16Output> {
  __device__ static __forceinline__ unsigned pack(float low, float high) { return ptx::pack_f16(low, high); }
  __device__ static __forceinline__ float unpack(unsigned bits) { return ptx::unpack_f16(bits); }
};
struct Bf16Output : PackedOutput<Bf16Output> {
  __device__ static __forceinline__ unsigned pack(float low, float high) { return ptx::pack_bf16(low, high); }
  __device__ static __forceinline__ float unpack(unsigned bits) { return __uint_as_float(bits << 16); }
};

/// Sums of integers, whose bits a run has.
struct I32Output : F32Output {
  enum : bool { kSums = true };
};

/// How many of kRun consecutive elements are read or written at once, where their address is a multiple of so
/// many bytes: of one element at least.
template <class Type, int kAlignment, int kRun>
__device__ constexpr int aligned_piece() {
  constexpr int kAligned = kAlignment / int{sizeof(typename Type::Element)};
  return kRun < kAligned ? kRun : kAligned > 0 ? kAligned : 1;
}
/// Reads or writes kRun elements, as many at once as the alignment allows.
template <class Type, int kAlignment, int kRun>
__device__ __forceinline__ void read_aligned(const typename Type::Element* from, float (&run)[kRun]) {
  enum : int { kPiece = aligned_piece<Type, kAlignment, kRun>() };
#pragma unroll
  for (int first = 0; first < kRun; first += kPiece) {
    float values[kPiece];
    Type::read(from + first, values);
#pragma unroll
    for (int v = 0; v < kPiece; ++v) run[first + v] = values[v];
  }
}
template <class Type, int kAlignment, int kRun>
__device__ __forceinline__ void write_aligned(typename Type::Element* to, const float (&run)[kRun]) {
  enum : int { kPiece = aligned_piece<Type, kAlignment, kRun>() };
#pragma unroll
  for (int first = 0; first < kRun; first += kPiece) {
    float values[kPiece];
#pragma unroll
    for (int v = 0; v < kPiece; ++v) values[v] = run[first + v];
    Type::write(to + first, values);
  }
}

}  // namespace sparsekiln
