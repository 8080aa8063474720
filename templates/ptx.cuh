#pragma once

// Small wrappers of PTX instructions, so that emitted sources need no header of the CUDA toolkit.

namespace sparsekiln::ptx {

/// Closes a group of queued copies.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most `kPending` of this thread's groups are incomplete.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Reads an element of an array that nothing writes while kernels run, though it is not const. NVVM reads
/// what is const by ld.global.nc, too.
template <class Element>
__device__ __forceinline__ Element read_only(const Element& at) {
  static_assert(sizeof(Element) == 4 || sizeof(Element) == 8 || sizeof(Element) == 16);
  Element element;
  if constexpr (sizeof(Element) == 4)
    reinterpret_cast<int&>(element) = __ldg(reinterpret_cast<const int*>(&at));
  else if constexpr (sizeof(Element) == 8)
    reinterpret_cast<int2&>(element) = __ldg(reinterpret_cast<const int2*>(&at));
  else
    reinterpret_cast<int4&>(element) = __ldg(reinterpret_cast<const int4*>(&at));
  return element;
}

/// Reads four floats of shared memory. This is assembly because NVVM splits some of these loads in two, in an
/// order that changes from process to process (observed with NVRTC 13.0), and the same source must give the
/// same code.
__device__ __forceinline__ float4 load_shared(unsigned shared) {
  float4 value;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(shared)
               : "memory");
  return value;
}

/// Writes consecutive words at once. This is assembly because NVVM splits such stores into words.
__device__ __forceinline__ void store_global(void* global, const unsigned (&words)[1]) {
  *static_cast<unsigned*>(global) = words[0];
}
__device__ __forceinline__ void store_global(void* global, const unsigned (&words)[2]) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(global), "r"(words[0]), "r"(words[1]) : "memory");
}
__device__ __forceinline__ void store_global(void* global, const unsigned (&words)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(global), "r"(words[0]), "r"(words[1]),
               "r"(words[2]), "r"(words[3])
               : "memory");
}
/// The same, of what is not read again soon: it leaves L2 first.
__device__ __forceinline__ void store_past(void* global, const unsigned (&words)[1]) {
  asm volatile("st.global.cs.b32 [%0], %1;" ::"l"(global), "r"(words[0]) : "memory");
}
__device__ __forceinline__ void store_past(void* global, const unsigned (&words)[2]) {
  asm volatile("st.global.cs.v2.b32 [%0], {%1, %2};" ::"l"(global), "r"(words[0]), "r"(words[1]) : "memory");
}
__device__ __forceinline__ void store_past(void* global, const unsigned (&words)[4]) {
  asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(global), "r"(words[0]), "r"(words[1]),
               "r"(words[2]), "r"(words[3])
               : "memory");
}
__device__ __forceinline__ void store_global(void* global, const float (&words)[1]) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(global), "f"(words[0]) : "memory");
}
__device__ __forceinline__ void store_global(void* global, const float (&words)[2]) {
  asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(global), "f"(words[0]), "f"(words[1]) : "memory");
}
__device__ __forceinline__ void store_global(void* global, const float (&words)[4]) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(global), "f"(words[0]), "f"(words[1]),
               "f"(words[2]), "f"(words[3])
               : "memory");
}

/// Reads consecutive words at once. It is volatile so that it is not moved before a store to the same address
/// that belongs to an earlier batch tile.
__device__ __forceinline__ void load_global(const void* global, unsigned (&words)[1]) {
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(words[0]) : "l"(global) : "memory");
}
__device__ __forceinline__ void load_global(const void* global, unsigned (&words)[2]) {
  asm volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "l"(global) : "memory");
}
__device__ __forceinline__ void load_global(const void* global, unsigned (&words)[4]) {
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "l"(global)
               : "memory");
}
__device__ __forceinline__ void load_global(const void* global, float (&words)[1]) {
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(words[0]) : "l"(global) : "memory");
}
__device__ __forceinline__ void load_global(const void* global, float (&words)[2]) {
  asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(words[0]), "=f"(words[1]) : "l"(global) : "memory");
}
__device__ __forceinline__ void load_global(const void* global, float (&words)[4]) {
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(words[0]), "=f"(words[1]), "=f"(words[2]), "=f"(words[3])
               : "l"(global)
               : "memory");
}

/// Reads what another CTA wrote before it released it. It never reads this multiprocessor's L1.
__device__ __forceinline__ void load_relaxed(const float* global, float (&words)[1]) {
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(words[0]) : "l"(global) : "memory");
}
__device__ __forceinline__ void load_relaxed(const float* global, float (&words)[2]) {
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];"
               : "=f"(words[0]), "=f"(words[1])
               : "l"(global)
               : "memory");
}
__device__ __forceinline__ void load_relaxed(const float* global, float (&words)[4]) {
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(words[0]), "=f"(words[1]), "=f"(words[2]), "=f"(words[3])
               : "l"(global)
               : "memory");
}

/// Adds to a counter in global memory and returns what it was. What this thread knows of is written before,
/// and what the other CTAs that have added knew of is read after.
__device__ __forceinline__ unsigned add_acquire_release(unsigned* counter, unsigned number) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(number)
               : "memory");
  return before;
}

/// Waits until the launches before this one in its stream have ended, where this one may begin earlier, and
/// until what they wrote can be read (PTX ISA, griddepcontrol; sm_90). In other launches it does nothing.
__device__ __forceinline__ void wait_for_earlier_launches() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
/// Lets the next launch begin, if it may begin early, once all CTAs have called this or have ended.
__device__ __forceinline__ void let_next_launch_begin() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// Fetches the 128 bytes around an address into L2. The address need not be valid.
__device__ __forceinline__ void prefetch_line(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

/// Rounds two floats to nearest even; `low` is the element at the lower address.
__device__ __forceinline__ unsigned pack_f16(float low, float high) {
  unsigned packed;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
#else
  asm("{\n\t.reg .b16 low, high;\n\tcvt.rn.f16.f32 low, %1;\n\tcvt.rn.f16.f32 high, %2;\n\t"
      "mov.b32 %0, {low, high};\n\t}"
      : "=r"(packed)
      : "f"(low), "f"(high));
#endif
  return packed;
}
/// The f16 in the lower half of a word.
__device__ __forceinline__ float unpack_f16(unsigned bits) {
  float value;
  asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %1;\n\tcvt.f32.f16 %0, low;\n\t}"
      : "=f"(value)
      : "r"(bits));
  return value;
}
__device__ __forceinline__ unsigned pack_bf16(float low, float high) {
  unsigned packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

}  // namespace sparsekiln::ptx
