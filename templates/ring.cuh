#pragma once

#include "ptx_mbarrier.cuh"
#include "ptx_tma.cuh"
#include "ptx_wgmma.cuh"

// A ring of stages in shared memory, and the warpgroups on its two sides: one warp has the copy engine of
// sm_90 fill stages ahead, and two warpgroups, or three, multiply what is in them. Each place of a ring has
// two barriers:
//
//   full    the producer has said how many bytes come, and all of them have arrived
//   empty   each warp that multiplies has arrived, once its products that read the place are complete
//
// The producer waits for `empty`, says what it expects on `full`, and queues the copies; the warps that
// multiply wait for `full`. docs/hopper.md has a picture.

namespace sparsekiln {

/// A place of a ring, and in which round it is used: even (0) or odd (1). The first is in round 0; before it
/// comes the last place in an odd round.
template <int kPlaces>
struct RingPlace {
  int place;
  unsigned parity;

  __device__ static __forceinline__ RingPlace first() { return {0, 0}; }
  __device__ static __forceinline__ RingPlace before_first() { return {kPlaces - 1, 1}; }

  __device__ __forceinline__ void advance() {
    if (++place == kPlaces) {
      place = 0;
      parity ^= 1;
    }
  }
};

/// The barriers of places.
template <int kPlaces>
class RingBarriers {
 public:
  __device__ __forceinline__ RingBarriers() : first(memory()) {}

  __device__ __forceinline__ unsigned full(int place) const { return first + place * 16; }
  __device__ __forceinline__ unsigned empty(int place) const { return full(place) + 8; }
  /// By one thread, before a barrier of the CTA. readers(place): the arrivals that empty a place.
  template <class Readers>
  __device__ __forceinline__ void make(Readers readers) const {
    for (int place = 0; place < kPlaces; ++place) {
      ptx::make_barrier(full(place), 1);
      ptx::make_barrier(empty(place), readers(place));
    }
    ptx::publish_barriers();
  }

 private:
  __device__ static __forceinline__ unsigned memory() {
    __shared__ unsigned long long barriers[2 * kPlaces];
    return static_cast<unsigned>(__cvta_generic_to_shared(barriers));
  }

  const unsigned first;
};

/// The dynamic shared memory, aligned to a swizzled unit of 1024 bytes.
__device__ __forceinline__ unsigned swizzled_shared() {
  extern __shared__ __align__(1024) unsigned char swizzled_shared_memory[];
  return static_cast<unsigned>(__cvta_generic_to_shared(swizzled_shared_memory));
}

/// The warpgroups of a CTA: some that multiply, and after them one that produces.
template <int kMultiplying>
struct WarpgroupsOf {
  enum : int {
    kCount = kMultiplying,
    kThreads = 128 * kCount,  ///< that multiply
    kWarps = kThreads / 32,
  };
  static_assert(kCount == 2 || kCount == 3, "registers are shared out for so many");
  /// The number of a thread's warpgroup.
  __device__ static __forceinline__ int own() { return static_cast<int>(threadIdx.x / 128); }
  /// A barrier of the threads that multiply: the producer is ahead.
  __device__ static __forceinline__ void sync() { ptx::sync_threads<1, kThreads>(); }

  /// Calls produce() in kProducers warps, and multiply() in all those that multiply.
  template <int kProducers = 1, int kProducerRegisters = kCount == 2 ? 40 : 32, class Produce, class Multiply>
  __device__ static __forceinline__ void run(Produce produce, Multiply multiply) {
    // A thread is launched with its share of the 65536 registers, in eights, 168 or 128: those that one
    // warpgroup gives back are what the others get.
    enum : int {
      kLaunched = 65536 / (128 * (kCount + 1)) / 8 * 8,
      kReaderRegisters = ((kCount + 1) * kLaunched - kProducerRegisters) / kCount / 8 * 8,
    };
    if (threadIdx.x >= kThreads) {
      ptx::release_registers<kProducerRegisters>();
      if (threadIdx.x / 32 < kWarps + kProducers) produce();
    } else {
      ptx::acquire_registers<kReaderRegisters>();
      multiply();
    }
  }
};
/// Two that multiply.
using Warpgroups = WarpgroupsOf<2>;

}  // namespace sparsekiln
