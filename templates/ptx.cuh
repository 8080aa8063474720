#pragma once

// Small wrappers of PTX instructions, so that emitted sources include no CUDA toolkit header.

namespace sparsekiln::ptx {

/// cp.async, sm_80 (PTX ISA, "Data Movement: cp.async"): queues a copy of 16 bytes from global to shared
/// memory. Only the first `bytes` of them are read, the rest become zeros.
__device__ __forceinline__ void copy_async(float* shared, const float* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(global), "r"(bytes)
               : "memory");
}

/// Ends a group of queued copies.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most `kPending` of this thread's groups are on their way.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Reads four floats of shared memory. In assembly, since NVVM else splits some of such loads in two, in an
/// order that changes from process to process (seen with NVRTC 13.0), and the same source must give the same
/// code.
__device__ __forceinline__ float4 load_shared(const float* shared) {
  float4 value;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared)))
               : "memory");
  return value;
}

/// Reads what another CTA wrote before a fence: never from this multiprocessor's L1.
__device__ __forceinline__ float load_relaxed(const float* global) {
  float value;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(value) : "l"(global) : "memory");
  return value;
}

}  // namespace sparsekiln::ptx
