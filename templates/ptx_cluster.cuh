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

/// Where another CTA of the cluster has what is at `address` in this one.
__device__ __forceinline__ unsigned address_in_cta(unsigned address, int cta) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(cta));
  return there;
}
/// Arrives on a barrier of any CTA of the cluster: what this thread has read is done for those who see the
/// phase end. Its writes are for threads of this CTA alone; to release them to the cluster, and to acquire
/// them there, ptxas would put fences of all memory into the loops.
__device__ __forceinline__ void arrive_in_cluster(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

}  // namespace sparsekiln::ptx
