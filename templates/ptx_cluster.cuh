#pragma once

// Wrappers of what the CTAs of a cluster have in common (PTX ISA, "Cluster of Cooperative Thread Arrays";
// sm_90).

namespace sparsekiln::ptx {

/// The number of this CTA in its cluster.
__device__ __forceinline__ int cta_of_cluster() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// A barrier of all threads of a cluster.
__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}

/// Arrives on a barrier that is where `barrier` is in this CTA, of another one of the cluster.
__device__ __forceinline__ void arrive_at(unsigned barrier, int cta) {
  asm volatile(
      "{\n\t.reg .b32 remote;\n\t"
      "mapa.shared::cluster.u32 remote, %0, %1;\n\t"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n\t}" ::"r"(barrier),
      "r"(cta)
      : "memory");
}

}  // namespace sparsekiln::ptx
