#pragma once

#include "requirements.cuh"
#include "ring.cuh"
#include "sddmm.cuh"
#include "wgmma_descriptors.cuh"
#include "wgmma_fragment.cuh"

// What the variants of SDDMM have in common whose warpgroups share a ring of chunks (ring.cuh): a place of it
// has what one chunk of the batch is multiplied from.
//
// Such a kernel calls begin_ring(), then WarpgroupsOf::run(). Its producer waits for places and fills them;
// the warps that multiply call multiply_chunks() for what they sum at once, and those that sum dy for the
// gradient of a bias read_chunks().

namespace sparsekiln {

/// By all threads, before all else: makes the barriers of the ring, of which so many warps read each place,
/// and waits for earlier launches. False where the CTA has nothing to do.
template <class Config, int kReaders, class Ring>
__device__ __forceinline__ bool begin_ring(const Ring& ring, bool has_work) {
  if (threadIdx.x == 0) ring.barriers.make([](int) { return kReaders; });
  wait_for_earlier_launches<Config>();
  if (!has_work) return false;
  __syncthreads();
  return true;
}

/// Adds the products of so many chunks, from the place after `at` on, and waits for them: sums can be read
/// then. While the products of a chunk are computed, calls meanwhile(place), and waits for those of the chunk
/// before, whose place it then gives back. kReadsByLanes: `meanwhile` reads the place.
template <bool kReadsByLanes = false, class Ring, ChunkSums Sums, class Use>
__device__ __forceinline__ void multiply_chunks(const Ring& ring, typename Ring::Place& at, int chunks,
                                                Sums& sums, Use meanwhile) {
  PlaceInUse<kReadsByLanes> read;
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    at.advance();
    sums.point_at(at.place);
    const unsigned full = ring.barriers.full(at.place);
    const unsigned empty = computed_here(ring.barriers.empty(at.place));
#pragma unroll
    for (int i = 0; i < Sums::kWaits; ++i) ptx::wait_for_phase(full, at.parity);
    sums.multiply();
    meanwhile(at.place);
    ptx::wait_products<1>();
    read.give_back();
    read.barrier = empty;
  }
  ptx::wait_products<0>();
  sums.pin();
  read.give_back();
}

/// Calls use(place) for so many chunks, from the place after `at` on, and gives each place back.
template <class Ring, class Use>
__device__ __forceinline__ void read_chunks(const Ring& ring, typename Ring::Place& at, int chunks, Use use) {
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    at.advance();
    ptx::wait_for_phase(ring.barriers.full(at.place), at.parity);
    use(at.place);
    release(ring.barriers.empty(at.place));
  }
}

/// One of the maps: of x and dy of each pair in turn.
template <class... Others>
__device__ __forceinline__ const TensorMap* map_at(int index, const TensorMap& first,
                                                   const Others&... others) {
  if constexpr (sizeof...(others) > 0)
    if (index > 0) return map_at(index - 1, others...);
  return &first;
}

}  // namespace sparsekiln
