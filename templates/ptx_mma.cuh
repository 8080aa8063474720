#pragma once

// Wrappers of the instructions that load operands for the tensor cores and run them. Shared memory is
// addressed by its 32-bit window address. Fragments are words in the order of the tables in the PTX ISA,
// "Warp-Level Matrix Instructions".

namespace sparsekiln::ptx {

/// The CTA's dynamic shared memory.
__device__ __forceinline__ unsigned dynamic_shared() {
  extern __shared__ __align__(128) unsigned char dynamic_shared_memory[];
  return static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared_memory));
}

/// cp.async of 16 bytes, sm_80 (PTX ISA, "Data Movement: cp.async"). The first `bytes` are read and the
/// others become zeros; with 0, nothing is read. Offsets, in bytes, are part of the instruction.
template <int kTo, int kFrom>
__device__ __forceinline__ void copy_async(unsigned shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0+%3], [%1+%4], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes),
               "n"(kTo), "n"(kFrom)
               : "memory");
}
template <int kTo, int kFrom>
__device__ __forceinline__ void copy_async(unsigned shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0+%2], [%1+%3], 16;" ::"r"(shared), "l"(global), "n"(kTo),
               "n"(kFrom)
               : "memory");
}

/// cp.async of 8 or 4 bytes, to and from addresses that are multiples of 8 or 4. Only .ca has these sizes.
template <int kBytes, int kTo, int kFrom>
__device__ __forceinline__ void copy_async_part(unsigned shared, const void* global, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0+%3], [%1+%4], %5, %2;" ::"r"(shared), "l"(global), "r"(bytes),
               "n"(kTo), "n"(kFrom), "n"(kBytes)
               : "memory");
}

/// An optimization barrier: the value stays in a register and is not recomputed.
template <class Value>
__device__ __forceinline__ Value kept(Value value) {
  if constexpr (sizeof(Value) == 8)
    asm volatile("" : "+l"(value));
  else
    asm volatile("" : "+r"(value));
  return value;
}

__device__ __forceinline__ void store_shared(unsigned shared, const uint4& value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}

__device__ __forceinline__ void store_shared(unsigned shared, const float4& value) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "f"(value.x), "f"(value.y),
               "f"(value.z), "f"(value.w)
               : "memory");
}

/// Reads 16 bytes.
template <int kOffset>
__device__ __forceinline__ void load_shared(unsigned (&words)[4], unsigned shared) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4+%5];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared), "n"(kOffset)
               : "memory");
}
template <int kOffset = 0>
__device__ __forceinline__ void load_shared(float (&values)[4], unsigned shared) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4+%5];"
               : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3])
               : "r"(shared), "n"(kOffset)
               : "memory");
}
__device__ __forceinline__ void load_shared(float (&values)[1], unsigned shared) {
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(values[0]) : "r"(shared) : "memory");
}
__device__ __forceinline__ void load_shared(float (&values)[2], unsigned shared) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(values[0]), "=f"(values[1])
               : "r"(shared)
               : "memory");
}
template <int kOffset>
__device__ __forceinline__ void store_shared(unsigned shared, float value) {
  asm volatile("st.shared.f32 [%0+%2], %1;" ::"r"(shared), "f"(value), "n"(kOffset) : "memory");
}

/// Writes consecutive floats at once.
template <int kOffset = 0>
__device__ __forceinline__ void store_shared(unsigned shared, const float (&values)[2]) {
  asm volatile("st.shared.v2.f32 [%0+%3], {%1, %2};" ::"r"(shared), "f"(values[0]), "f"(values[1]),
               "n"(kOffset)
               : "memory");
}
__device__ __forceinline__ void store_shared(unsigned shared, const float (&values)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "f"(values[0]), "f"(values[1]),
               "f"(values[2]), "f"(values[3])
               : "memory");
}

/// Reads matrices of 8 rows × 16 bytes; lanes 8m … 8m + 7 address the rows of matrix m. A lane receives word
/// lane % 4 of row lane / 4 of each matrix.
template <int kOffset>
__device__ __forceinline__ void load_matrices(unsigned (&words)[4], unsigned shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4+%5];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared), "n"(kOffset)
               : "memory");
}
template <int kOffset>
__device__ __forceinline__ void load_matrices(unsigned (&words)[2], unsigned shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2+%3];"
               : "=r"(words[0]), "=r"(words[1])
               : "r"(shared), "n"(kOffset)
               : "memory");
}

/// Transposes a matrix of 8 × 8 elements of 16 bits, of which lane l has two in a row, 2 · (l % 4) and the
/// next of row l / 4: it receives them of the other's rows (PTX ISA, "movmatrix").
__device__ __forceinline__ unsigned transposed(unsigned word) {
  unsigned result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(word));
  return result;
}

/// Transposes a matrix of 8 × 8 floats, of which a lane has two, where `transposed` has words of two
/// elements.
__device__ __forceinline__ void transpose(float& first, float& second) {
  const unsigned low = transposed(__byte_perm(__float_as_uint(first), __float_as_uint(second), 0x5410));
  const unsigned high = transposed(__byte_perm(__float_as_uint(first), __float_as_uint(second), 0x7632));
  first = __uint_as_float(__byte_perm(low, high, 0x5410));
  second = __uint_as_float(__byte_perm(low, high, 0x7632));
}

/// Reads the same matrices transposed, with elements of 16 bits: a lane receives element lane / 4 of rows 2 ·
/// (lane % 4) and 2 · (lane % 4) + 1 of each matrix (PTX ISA, "ldmatrix").
template <int kOffset>
__device__ __forceinline__ void load_columns(unsigned (&words)[4], unsigned shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4+%5];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared), "n"(kOffset)
               : "memory");
}
template <int kOffset>
__device__ __forceinline__ void load_columns(unsigned (&words)[2], unsigned shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2+%3];"
               : "=r"(words[0]), "=r"(words[1])
               : "r"(shared), "n"(kOffset)
               : "memory");
}
template <int kOffset>
__device__ __forceinline__ void load_word(unsigned& word, unsigned shared) {
  asm volatile("ld.shared.b32 %0, [%1+%2];" : "=r"(word) : "r"(shared), "n"(kOffset) : "memory");
}
template <int kOffset>
__device__ __forceinline__ void load_words(unsigned& first, unsigned& second, unsigned shared) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2+%3];"
               : "=r"(first), "=r"(second)
               : "r"(shared), "n"(kOffset)
               : "memory");
}

/// Returns the value of the lane whose number differs in the bits of kLanes. This is assembly because NVVM
/// would keep accumulators that pass through the intrinsic as integers, and move each before and after its
/// products.
template <int kLanes>
__device__ __forceinline__ float exchanged(float value) {
  float got;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(got) : "f"(value), "n"(kLanes));
  return got;
}

/// accumulators += A · B. A has 16 rows × 32 bytes of k, B has 8 columns of as many bytes.
__device__ __forceinline__ void mma_f16(float (&accumulators)[4], const unsigned (&a)[4],
                                        const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(accumulators[0]), "+f"(accumulators[1]), "+f"(accumulators[2]), "+f"(accumulators[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  // m16n8k16's fragments are those of two m16n8k8, one for each half of k.
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%8}, {%0, %1, %2, "
      "%3};\n\t"
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%6, %7}, {%9}, {%0, %1, %2, %3};"
      : "+f"(accumulators[0]), "+f"(accumulators[1]), "+f"(accumulators[2]), "+f"(accumulators[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
__device__ __forceinline__ void mma_bf16(float (&accumulators)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(accumulators[0]), "+f"(accumulators[1]), "+f"(accumulators[2]), "+f"(accumulators[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_tf32(float (&accumulators)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(accumulators[0]), "+f"(accumulators[1]), "+f"(accumulators[2]), "+f"(accumulators[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// products = A · B.
__device__ __forceinline__ void multiply_e4m3(float (&products)[4], const unsigned (&a)[4],
                                              const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %10, %10, %10};"
      : "=f"(products[0]), "=f"(products[1]), "=f"(products[2]), "=f"(products[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
}
__device__ __forceinline__ void multiply_e5m2(float (&products)[4], const unsigned (&a)[4],
                                              const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %10, %10, %10};"
      : "=f"(products[0]), "=f"(products[1]), "=f"(products[2]), "=f"(products[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
}
/// accumulators += A · B. Sums wrap around.
__device__ __forceinline__ void mma_s8(int (&accumulators)[4], const unsigned (&a)[4],
                                       const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(accumulators[0]), "+r"(accumulators[1]), "+r"(accumulators[2]), "+r"(accumulators[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Rounds a float to tf32, to nearest, ties away from zero.
__device__ __forceinline__ unsigned round_tf32(unsigned value) {
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(value)));
  return rounded;
}

}  // namespace sparsekiln::ptx
