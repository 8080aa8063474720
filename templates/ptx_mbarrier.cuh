#pragma once

// Wrappers of mbarriers, barriers in shared memory on which threads and copies arrive (PTX ISA, "Parallel
// Synchronization and Communication Instructions: mbarrier"). A phase ends when as many threads have arrived
// as the barrier was made for, and as many bytes as they said to expect. Shared memory is addressed by its
// 32-bit window address.

namespace sparsekiln::ptx {

__device__ __forceinline__ void make_barrier(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Makes the barriers that this thread made known to copies and to other CTAs of a cluster.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// What this thread has read and written before is done for those who see the phase end.
__device__ __forceinline__ void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// As so many threads.
__device__ __forceinline__ void arrive_as(unsigned barrier, int threads) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/// As one; and the phase does not end before as many bytes have been copied.
__device__ __forceinline__ void arrive_and_expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// Waits until the phase has ended whose number is even (0) or odd (1). A new barrier is in phase 0: the one
/// before it, which is odd, has ended.
__device__ __forceinline__ void wait_for_phase(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n\t.reg .pred ended;\n"
      "again:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n\t"
      "@!ended bra again;\n\t}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// A barrier of whole warps, `kThreads` threads in all; number 0 is __syncthreads.
template <int kNumber, int kThreads>
__device__ __forceinline__ void sync_threads() {
  asm volatile("bar.sync %0, %1;" ::"n"(kNumber), "n"(kThreads) : "memory");
}

}  // namespace sparsekiln::ptx
