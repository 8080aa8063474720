#pragma once

#include "halo_rings.cuh"
#include "lattice.cuh"
#include "ptx_mma.cuh"
#include "ptx_tma.cuh"
#include "schedule.cuh"

// The warps that fill the rings of a convolution: one for each ring of W, and one for x. A step is short work
// for the tensor cores, and one thread that did all of it could not keep up. So each warp reads 32 steps at a
// time, one a lane, and all that is to be known of a step is computed in its lane: which stage of x and which
// place of W it has. Then one lane after the other waits for its place, and queues the copies.

namespace sparsekiln {

/// The steps of a worker, 32 at a time. All lanes of a warp call each function together.
template <class Config>
class HaloSteps {
 public:
  using Points = Lattice<Config>;
  using Table = typename Config::Table;
  enum : int { kPlane = Config::kernel_h * Config::kernel_w };  ///< taps that read the same stage

  __device__ __forceinline__ HaloSteps(const Table& from, int begin, int chunks_end)
      : table(from), first(begin), end(chunks_end) {
    load(first);
    take();
  }
  /// The calling lane's step. Lanes of steps after the last one have one that is absent.
  __device__ __forceinline__ const Step& own() const { return held; }
  __device__ __forceinline__ int block(int place) const { return blocks[place]; }
  /// Which stage of x it needs, for each tile of positions.
  __device__ __forceinline__ int stage() const { return held.column() / kPlane; }

  /// Calls use(lanes, starts) for the steps of an item, up to chunk `item_end`, once for each 32 steps that
  /// have some of them. `lanes` has a bit for each step, and `starts` for those with another stage than the
  /// one before.
  template <class Use>
  __device__ __forceinline__ void for_each(int item_end, Use use) {
    bool begins = true;
    while (next < item_end) {
      const int from = next - first;
      const int to = min(item_end - first, 32);
      const unsigned lanes = (to == 32 ? ~0u : (1u << to) - 1) & ~0u << from;
      const int before = __shfl_up_sync(0xffffffff, stage(), 1);
      const bool starts = (lane == from && begins) || stage() != (lane == 0 ? last : before);
      use(lanes, __ballot_sync(0xffffffff, starts) & lanes);
      begins = false;
      next = first + to;
      if (to < 32) continue;
      last = __shfl_sync(0xffffffff, stage(), 31);
      first += 32;
      take();
    }
  }

 private:
  /// Begins to load the steps from a chunk on.
  __device__ __forceinline__ void load(int from) {
    const int chunk = from + lane;
    loaded = {Step::absent().bits, 0};
    if (chunk >= end) return;
    loaded = table.step(chunk);
    if constexpr (Config::merge > 1) {
#pragma unroll
      for (int i = 1; i < Config::merge; ++i) more[i] = table.more_block(chunk * (Config::merge - 1) + i - 1);
    }
  }
  /// Goes on to the steps that were loaded, and loads those after them.
  __device__ __forceinline__ void take() {
    held.bits = loaded.x;
    blocks[0] = static_cast<int>(loaded.y);
#pragma unroll
    for (int i = 1; i < Config::merge; ++i) blocks[i] = more[i];
    load(first + 32);
  }

  const Table& table;
  const int lane = static_cast<int>(threadIdx.x % 32);
  int first;  ///< the chunk of lane 0
  const int end;
  int next = first;  ///< that is used next
  int last = -1;     ///< the stage of the step before lane 0's
  Step held{0};
  int blocks[Config::merge];
  uint2 loaded;
  int more[Config::merge] = {};  ///< from 1 on
};

/// Bits of the lanes before this one.
__device__ __forceinline__ unsigned lanes_before() { return (1u << threadIdx.x % 32) - 1; }

/// A warp that fills a ring of W.
template <class Config>
class HaloWeights {
 public:
  using Rings = HaloRings<Config>;

  __device__ __forceinline__ HaloWeights(const Rings& to, const typename Config::Table& tables, int worker,
                                         int own_ring)
      : rings(to),
        table(tables),
        begin(tables.worker(worker)),
        end(tables.worker(worker + 1)),
        ring(own_ring) {}

  /// The steps of the worker for a tile of positions.
  __device__ __forceinline__ void load(const TensorMap& map) {
    HaloSteps<Config> steps(table, begin.chunk, end.chunk);
    int item_end = table.item_end(begin.item);
#pragma unroll 1
    for (int item = begin.item; item < end.item; ++item) {
      const int next_end = table.item_end(item + 1);  // while this one is copied
      held = kNone;
      first_stage = stages;
      steps.for_each(item_end, [&](unsigned lanes, unsigned starts) { copy(steps, lanes, starts, map); });
      if (lane == 0) {
        if (stages > first_stage && held != stages - 1) skip(stages - 1);
        send(HaloStep::last(), filled);
      }
      __syncwarp();
      ++filled;
      item_end = next_end;
    }
  }

 private:
  enum : int { kNone = -1 };

  __device__ __forceinline__ void copy(const HaloSteps<Config>& steps, unsigned lanes, unsigned starts,
                                       const TensorMap& map) {
    const unsigned before = lanes_before();
    const unsigned own =
        Rings::kRings == 1 ? lanes : __ballot_sync(0xffffffff, steps.own().tile() == ring) & lanes;
    // The number of the lane's stage, and of the one that the ring's step before it has.
    const int stage = stages + __popc(starts & (before << 1 | 1)) - 1;
    const int previous = 31 - __clz(own & before);
    const int of_previous = __shfl_sync(0xffffffff, stage, max(previous, 0));
    const int holds = previous < 0 ? held : of_previous;
    const bool begins = (starts >> lane & 1) != 0;
    const bool asks = begins && holds != kNone && stage - holds == 2;
    const unsigned asking = __ballot_sync(0xffffffff, asks);
    const int number = filled + __popc(own & before) + __popc(asking & before);
    const HaloStep step = HaloStep::of(Rings::Box::displacement(steps.own().column()),
                                       stage % Rings::kPlacesX, stage / Rings::kPlacesX & 1, stage != holds);
#pragma unroll 1
    for (unsigned left = own | starts; left != 0; left &= left - 1) {
      if (lane == __ffs(left) - 1) {
        if (asks) send(HaloStep::release(), number);
        if (begins) {
          if (stage > first_stage && holds != stage - 1) skip(stage - 1);
          // NOTES: nothing tells a phase from the one two before it. So each stage is waited for, also those
          // that the ring does not read: its steps are not ahead of the round of x that they need.
          ptx::wait_for_phase(rings.empty_x(stage % Rings::kPlacesX), (stage / Rings::kPlacesX & 1) ^ 1);
        }
        if ((own >> lane & 1) != 0) {
          const int at = number + (asks ? 1 : 0);
          const unsigned full = begin_step(step, at);
          ptx::arrive_and_expect(full, Rings::kBytesW);
          copy_blocks(steps, rings.w(Rings::number_of(ring, at % Rings::kPlacesW)), map, full);
        }
      }
      __syncwarp();
    }
    filled += __popc(own) + __popc(asking);
    if (own != 0) held = __shfl_sync(0xffffffff, stage, 31 - __clz(own));
    stages += __popc(starts);
  }
  /// An absent block of a merged step has number -1: its boxes are outside of the matrix, and become zeros.
  __device__ __forceinline__ void copy_blocks(const HaloSteps<Config>& steps, unsigned to,
                                              const TensorMap& map, unsigned full) const {
#pragma unroll
    for (int i = 0; i < Config::merge; ++i) {
      if constexpr (Config::by_columns) {
        enum : int { kColumns = Config::block_out / Rings::kLine };
#pragma unroll
        for (int column = 0; column < kColumns; ++column)
          ptx::copy_box<1>(to + (i * kColumns + column) * Rings::kColumnBytes, map, column * Rings::kLine,
                           steps.block(i) * Config::block_in, full);
      } else {
        enum : int { kSpans = Config::block_out / 16 };
#pragma unroll
        for (int box = 0; box < Rings::kBoxes; ++box)
          ptx::copy_box_in_order<1>(to + box * Rings::kBoxBytesW + i * Config::block_out * Rings::kLineBytes,
                                    map, box * Rings::kLine, steps.block(i) * kSpans, full);
      }
    }
  }
  /// By one lane: waits for the ring's place of a number, and writes what its step is. Gives the barrier that
  /// is full then.
  __device__ __forceinline__ unsigned begin_step(const HaloStep& step, int number) const {
    const int place = number % Rings::kPlacesW;
    ptx::wait_for_phase(rings.empty_w(ring, place), (number / Rings::kPlacesW & 1) ^ 1);
    *rings.step(ring, place) = step.bits;
    return rings.full_w(ring, place);
  }
  /// A step without products.
  __device__ __forceinline__ void send(const HaloStep& step, int number) const {
    ptx::arrive(begin_step(step, number));
  }
  /// The ring had no step with a stage of x, so that its warpgroups will not say that they have read it.
  __device__ __forceinline__ void skip(int stage) const {
    ptx::arrive_as(rings.empty_x(stage % Rings::kPlacesX), 4 * Rings::kSharers);
  }

  const Rings& rings;
  const typename Config::Table& table;
  const WorkerBegin begin;
  const WorkerBegin end;
  const int ring;
  const int lane = static_cast<int>(threadIdx.x % 32);
  int filled = 0;       ///< places of the ring, one round after the other
  int stages = 0;       ///< of x, as many as items before this step have
  int first_stage = 0;  ///< of the item
  int held = kNone;     ///< the stage that the ring's last step of the item has
};

/// The warp that fills the ring of x.
template <class Config>
class HaloImages {
 public:
  using Rings = HaloRings<Config>;

  __device__ __forceinline__ HaloImages(const Rings& to, const typename Config::Table& tables, int worker)
      : rings(to), table(tables), begin(tables.worker(worker)), end(tables.worker(worker + 1)) {}

  /// The stages of the worker for a tile of positions.
  __device__ __forceinline__ void load(const HaloPlace<Config>& place, const TensorMap& map) {
    HaloSteps<Config> steps(table, begin.chunk, end.chunk);
#pragma unroll 1
    for (int item = begin.item; item < end.item; ++item)
      steps.for_each(table.item_end(item), [&](unsigned, unsigned starts) {
#pragma unroll 1
        for (unsigned left = starts; left != 0; left &= left - 1) {
          if (lane == __ffs(left) - 1) fill(steps.own().column(), place, map);
          __syncwarp();
          ++stages;
        }
      });
  }

 private:
  /// By one lane, for the first block column that needs the stage.
  __device__ __forceinline__ void fill(int column, const HaloPlace<Config>& place,
                                       const TensorMap& map) const {
    const int to = stages % Rings::kPlacesX;
    const unsigned full = rings.full_x(to);
    rings.barriers.expect(to, stages / Rings::kPlacesX & 1, Rings::kBoxes * Rings::Box::kCopied);
    const int feature = column / Lattice<Config>::kTaps * Config::block_in;
#pragma unroll
    for (int box = 0; box < Rings::kBoxes; ++box)
      Rings::Box::copy(rings.x(to) + box * Rings::Box::kBytes, map, feature + box * Rings::kLine, place,
                       column, full);
  }

  const Rings& rings;
  const typename Config::Table& table;
  const WorkerBegin begin;
  const WorkerBegin end;
  const int lane = static_cast<int>(threadIdx.x % 32);
  int stages = 0;  ///< that were filled
};

}  // namespace sparsekiln
