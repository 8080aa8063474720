#pragma once

#include "ptx_cluster.cuh"
#include "ptx_mbarrier.cuh"
#include "ptx_tma.cuh"
#include "ptx_wgmma.cuh"
#include "requirements.cuh"

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
  /// By one thread: waits until a place may be filled, and says how many bytes will arrive.
  __device__ __forceinline__ void expect(int place, unsigned parity, int bytes) const {
    ptx::wait_for_phase(empty(place), parity ^ 1);
    ptx::arrive_and_expect(full(place), bytes);
  }

 private:
  __device__ static __forceinline__ unsigned memory() {
    __shared__ unsigned long long barriers[2 * kPlaces];
    return static_cast<unsigned>(__cvta_generic_to_shared(barriers));
  }

  const unsigned first;
};

/// One lane says that its warp has read what a barrier is of; where CTAs of a cluster bring a share of it
/// each, as many lanes.
template <int kCtas = 1>
__device__ __forceinline__ void release(unsigned barrier) {
  if (threadIdx.x % 32 >= kCtas) return;
  if constexpr (kCtas == 1)
    ptx::arrive(barrier);
  else
    ptx::arrive_in_cluster(barrier);
}

/// What queued products read: it is given back once they are complete. kReadsByLanes: lanes read it, too.
template <bool kReadsByLanes>
struct PlaceInUse {
  enum : unsigned { kNothing = 1 };  ///< the address of no barrier
  unsigned barrier = kNothing;       ///< that says when it is empty

  __device__ __forceinline__ void give_back() const {
    if (barrier == kNothing) return;
    if constexpr (kReadsByLanes) __syncwarp();
    release(barrier);
  }
};

/// The dynamic shared memory, aligned to a swizzled unit of 1024 bytes.
__device__ __forceinline__ unsigned swizzled_shared() {
  extern __shared__ __align__(1024) unsigned char swizzled_shared_memory[];
  return static_cast<unsigned>(__cvta_generic_to_shared(swizzled_shared_memory));
}

/// Two rings, of x and of W, or of W several: one place after the other in shared memory, first those of x,
/// then those of each ring of W. A place of W has a word that says what it is of, written before it is full.
/// kMoreBarriers come after those of places.
template <LayoutOfRings Layout, int kMoreBarriers = 0>
struct OperandRings : Layout {
  enum : int {
    kPlacesX = Layout::kPlacesX,
    kNumbersW = Layout::kRings * Layout::kPlacesW,  ///< places of W
    kCtas = Layout::kCtasX * Layout::kCtasW,        ///< that share places
  };
  using PlaceX = RingPlace<kPlacesX>;
  using PlaceW = RingPlace<Layout::kPlacesW>;

  const unsigned tiles = swizzled_shared();
  const RingBarriers<kPlacesX + kNumbersW + kMoreBarriers> barriers;

  /// The number of a place of W.
  __device__ static __forceinline__ int number_of(int ring, int place) {
    return ring * Layout::kPlacesW + place;
  }
  __device__ __forceinline__ unsigned x(int place) const { return tiles + place * Layout::kBytesX; }
  __device__ __forceinline__ unsigned w(int number) const {
    return tiles + kPlacesX * Layout::kBytesX + number * Layout::kBytesW;
  }
  __device__ __forceinline__ unsigned full_x(int place) const { return barriers.full(place); }
  __device__ __forceinline__ unsigned empty_x(int place) const { return barriers.empty(place); }
  __device__ __forceinline__ unsigned full_w(int number) const { return barriers.full(kPlacesX + number); }
  __device__ __forceinline__ unsigned empty_w(int number) const { return barriers.empty(kPlacesX + number); }
  /// The word of a place of W.
  __device__ static __forceinline__ unsigned& word(int number) {
    __shared__ unsigned memory[kNumbersW];
    return memory[number];
  }

  /// By one thread, before sync().
  __device__ __forceinline__ void make_barriers() const {
    barriers.make(
        [](int place) { return place < kPlacesX ? int{Layout::kReadersX} : int{Layout::kReadersW}; });
  }
  /// A barrier of all threads that use the rings.
  __device__ static __forceinline__ void sync() {
    if constexpr (kCtas == 1)
      __syncthreads();
    else
      ptx::sync_cluster();
  }
};

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
