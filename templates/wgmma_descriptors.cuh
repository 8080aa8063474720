#pragma once

// Descriptors of wgmma's operands in the stages of shared memory (PTX ISA, "Matrix-descriptor Format").
//
// NOTES: a wgmma takes its two descriptors from four uniform registers in a row. Left alone, ptxas makes them
// between one wgmma and the next, all in the same registers. Three things keep the products of a chunk
// together (bench/sass.py counts them): descriptors are made before the wait for what they describe, and
// ptxas does not move them past its branches; each is opaque, so that it is made by one addition; and each
// product has a pair of its own, since one that two products share is copied for the second.

namespace sparsekiln {

/// Bytes of eight rows of `line_bytes`, within which units of 16 bytes are exchanged.
__device__ constexpr int swizzled_unit(int line_bytes) { return 8 * line_bytes; }

/// A descriptor of swizzled rows of 128 bytes, of 64 or of 32. Eight rows are followed by the next eight,
/// kStride bytes from the first of those; where rows are not along k, the next kLineBytes of their matrix are
/// `ahead` bytes ahead (PTX ISA, "Matrix-descriptor Format": the stride and the leading dimension's byte
/// offset).
template <int kLineBytes, int kStride = swizzled_unit(kLineBytes)>
__device__ __forceinline__ unsigned long long swizzled_descriptor(unsigned shared, int ahead = 0) {
  constexpr unsigned long long kSwizzled = (kLineBytes == 128 ? 1ull : kLineBytes == 64 ? 2ull : 3ull) << 62;
  constexpr unsigned long long kOffset = kStride;
  return kSwizzled | kOffset / 16 << 32 | ahead / 16 << 16 | (shared & 0x3ffff) / 16;
}

/// The half of a descriptor that depends on where its matrix is, and the descriptor that has this half.
template <int kLineBytes, int kStride = swizzled_unit(kLineBytes)>
__device__ __forceinline__ unsigned descriptor_word(unsigned shared, int ahead = 0) {
  return static_cast<unsigned>(swizzled_descriptor<kLineBytes, kStride>(shared, ahead));
}
template <int kLineBytes, int kStride = swizzled_unit(kLineBytes)>
__device__ __forceinline__ unsigned long long descriptor_of_word(unsigned word) {
  return swizzled_descriptor<kLineBytes, kStride>(0) | word;
}

/// The value, which the compiler then takes for unknown, and computes here rather than where it is used.
__device__ __forceinline__ unsigned computed_here(unsigned value) {
  asm volatile("" : "+r"(value));
  return value;
}
__device__ __forceinline__ unsigned long long computed_here(unsigned long long value) {
  asm volatile("" : "+l"(value));
  return value;
}

/// The descriptors of a chunk's steps along k, each of them kStep after the one before, in units of 16 bytes
/// as descriptors count. A lane's address is that of all lanes, so that descriptors are uniform.
template <int kLineBytes, int kSteps, int kStep, int kStride = swizzled_unit(kLineBytes)>
struct StepDescriptors {
  unsigned long long of[kSteps];

  __device__ __forceinline__ void point_at(unsigned shared, int ahead = 0) {
    begin_with(swizzled_descriptor<kLineBytes, kStride>(shared, ahead));
  }
  __device__ __forceinline__ void point_at_word(unsigned word) {
    begin_with(descriptor_of_word<kLineBytes, kStride>(word));
  }

 private:
  __device__ __forceinline__ void begin_with(unsigned long long descriptor) {
    const unsigned long long first = computed_here(descriptor);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) of[step] = computed_here(first + step * kStep);
  }
};

}  // namespace sparsekiln
