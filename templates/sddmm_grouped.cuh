#pragma once

#include "piece_groups.cuh"
#include "ring.cuh"
#include "sddmm.cuh"
#include "wgmma_descriptors.cuh"

// SDDMM on the tensor cores of sm_90a, accumulated in float32, where a CTA sums many blocks at once.
//
// Blocks are cut into pieces of 64 outputs and 64 inputs. A CTA has groups of up to Config::width pieces
// (compiler/block_groups.h), one after the other. A place of the ring is a chunk of batch rows of what the
// pieces of a group read: tiles of 64 features, of dy and then of x, in rows of 128 bytes, one for each batch
// row. So a tile that several pieces share comes from L2 once. As in sddmm_wgmma.cuh, wgmma transposes both.
//
// A product is of two pieces, which share a tile: A is that tile, and B the other two, wherever they are in
// the place. Pieces of one row share dy, and are summed as they are in dw; those of one column share x, and
// are summed transposed.
//
//   warpgroups 0 to 2   multiply, each its third of the pairs, whose sums are in registers
//   warpgroup 3         one warp fills the ring; the other three sum dy where the gradient of a bias is asked
//
// Where pieces are few, several CTAs share a group, a slice of the batch rows each. The last to arrive adds
// their sums in ascending order of slices.
//
// Exact order: as the hardware adds 16 batch rows, in ascending order of pairs and batch rows; then slices.

namespace sparsekiln {

/// The four warpgroups of a CTA: three that multiply, and after them one of which a warp produces, and three
/// sum dy.
struct GroupedWarps : WarpgroupsOf<3> {
  enum : int { kAdding = 3 };  ///< warps of the last warpgroup
  /// The number of a thread's warpgroup: that of one lane, so that what depends on it is uniform.
  __device__ static __forceinline__ int own() { return __shfl_sync(0xffffffff, WarpgroupsOf<3>::own(), 0); }
  /// Registers of a thread of the last warpgroup, where one that multiplies has so many sums.
  __device__ static constexpr int feeding_registers(int sums) { return sums > 64 ? 32 : 104; }
};

/// The ring of a CTA.
template <class Config>
struct GroupedRing {
  enum : int {
    kTileFeatures = 64,
    kLineBytes = 128,  ///< of a row of a tile
    kBytesTile = Config::chunk * kLineBytes,
    kBytesPlace = Config::place_tiles * kBytesTile,
  };
  using Place = RingPlace<Config::stages>;

  const unsigned tiles = swizzled_shared();
  const RingBarriers<Config::stages> barriers;

  /// Where a tile is in the first place.
  __device__ __forceinline__ unsigned tile(int number) const { return tiles + number * kBytesTile; }
};

/// One of the maps: x and dy of each pair in turn.
template <class... Others>
__device__ __forceinline__ const TensorMap* grouped_map(int index, const TensorMap& first,
                                                        const Others&... others) {
  if constexpr (sizeof...(others) > 0)
    if (index > 0) return grouped_map(index - 1, others...);
  return &first;
}

/// Fills the ring for a group: each lane queues copies of a tile of its own.
template <class Config, class... Maps>
__device__ __forceinline__ void load_group(const GroupedRing<Config>& ring,
                                           typename GroupedRing<Config>::Place& at, const PieceGroup& group,
                                           const typename Config::Table& table, int pairs,
                                           const BatchSlice& slice, const Maps&... maps) {
  using Ring = GroupedRing<Config>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool has_tile = lane < group.tiles;
  const int column = has_tile ? table.tile(group.first + lane) * Ring::kTileFeatures : 0;
#pragma unroll 1
  for (int pair = 0; pair < pairs; ++pair) {
    const TensorMap* const map = grouped_map(2 * pair + (lane < group.of_dy ? 1 : 0), maps...);
#pragma unroll 1
    for (int row = 0; row < slice.count; row += Config::chunk) {
      const unsigned full = ring.barriers.full(at.place);
      if (lane == 0) {
        ptx::wait_for_phase(ring.barriers.empty(at.place), at.parity ^ 1);
        ptx::arrive_and_expect(full, group.tiles * Ring::kBytesTile);
      }
      __syncwarp();
      if (has_tile)
        ptx::copy_box<1>(ring.tile(lane) + at.place * Ring::kBytesPlace, *map, column, slice.first + row,
                         full);
      at.advance();
    }
  }
}

/// The sums of tiles of dy over the batch rows, which three warps have in shared memory: registers are few. A
/// lane adds two features.
template <class Config>
class GroupedBiasSums {
 public:
  using Ring = GroupedRing<Config>;

  /// What a group sums.
  __device__ __forceinline__ GroupedBiasSums(int of_warp, int of_group) : warp(of_warp), summed(of_group) {
    for (int tile = warp; tile < summed; tile += GroupedWarps::kAdding) at(tile) = float2{0, 0};
  }
  /// Adds what a place of the ring has.
  __device__ __forceinline__ void add(const Ring& ring, int place) {
#pragma unroll 1
    for (int tile = warp; tile < summed; tile += GroupedWarps::kAdding) {
      const unsigned from = ring.tile(tile) + place * Ring::kBytesPlace;
      float2 sum = at(tile);
#pragma unroll 2
      for (int row = 0; row < Config::chunk; ++row) {
        unsigned bits;
        ptx::load_word<0>(bits, from + row * Ring::kLineBytes + (lane() / 4 ^ row % 8) * 16 + lane() % 4 * 4);
        sum.x += Config::Operand::of_word(bits, 0);
        sum.y += Config::Operand::of_word(bits, 1);
      }
      at(tile) = sum;
    }
  }
  /// Calls use(tile, feature, sum) for each sum of this lane.
  template <class Use>
  __device__ __forceinline__ void each(Use use) const {
#pragma unroll 1
    for (int tile = warp; tile < summed; tile += GroupedWarps::kAdding) {
      use(tile, 2 * lane(), at(tile).x);
      use(tile, 2 * lane() + 1, at(tile).y);
    }
  }

 private:
  __device__ static __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  /// The two sums of this lane.
  __device__ static __forceinline__ float2& at(int tile) {
    __shared__ float2 sums[Config::width][32];
    return sums[tile][lane()];
  }

  const int warp;
  const int summed;
};

/// A group in the workspace, where slices of the batch meet: counters of all groups, then for each group and
/// slice the sums of its threads, four at a time next to each other, and those of dy.
template <class Config>
struct SlicedGroup {
  enum : int {
    kSums = 32 * Config::width / GroupedWarps::kCount,  ///< of a thread
    kOfProducts = kSums * GroupedWarps::kThreads,
    kPart = kOfProducts + 64 * Config::width,
    kThreads = GroupedWarps::kThreads + (Config::has_bias_gradient ? 32 * GroupedWarps::kAdding : 0),
  };
  unsigned* const counter;
  float* const parts;  ///< of all slices
  float* const own;

  __device__ __forceinline__ SlicedGroup(void* workspace, int group, int slice)
      : counter(static_cast<unsigned*>(workspace) + group),
        parts(reinterpret_cast<float*>(static_cast<char*>(workspace) + Config::counter_bytes) +
              static_cast<long long>(group) * Config::slices * kPart),
        own(parts + static_cast<long long>(slice) * kPart) {}

  __device__ static __forceinline__ void sync() { ptx::sync_threads<1, kThreads>(); }
  __device__ static __forceinline__ int sum_of_dy(int tile, int feature) {
    return kOfProducts + tile * 64 + feature;
  }
  /// Once all threads that sum have written theirs: true in the CTA that arrives last.
  __device__ __forceinline__ bool arrives_last(int slices) const {
    __shared__ int last;
    sync();  // orders all sums before the atomic, as combine() of epilogue.cuh says
    if (threadIdx.x == 0) {
      last = ptx::add_acquire_release(counter, 1) + 1 == static_cast<unsigned>(slices) ? 1 : 0;
      if (last != 0) *counter = 0;
    }
    sync();
    return last != 0;
  }
};

/// The pairs of pieces of a warpgroup.
template <class Config>
class GroupedTile {
 public:
  using Ring = GroupedRing<Config>;
  using Sliced = SlicedGroup<Config>;
  enum : int {
    kPairs = Config::width / (2 * GroupedWarps::kCount),
    kSums = 64,  ///< of a thread for a pair
    kSteps = Config::chunk / 16,
    kInterleave = Config::interleave,
  };
  enum : bool { kExchanges = kInterleave == 4 };
  /// A step along dy or x is 16 batch rows.
  struct Descriptors {
    enum : int { kStep = 2 * swizzled_unit(Ring::kLineBytes) / 16 };
    unsigned long long of[kSteps];

    __device__ __forceinline__ void point_at(unsigned word) {
      const unsigned long long first =
          computed_here(swizzled_descriptor<Ring::kLineBytes>(0) | static_cast<unsigned long long>(word));
#pragma unroll
      for (int step = 0; step < kSteps; ++step) of[step] = computed_here(first + step * kStep);
    }
  };

  /// Pairs from `first` on. Descriptors are those of one lane, so that they are uniform.
  __device__ __forceinline__ GroupedTile(const Ring& ring, const typename Config::Table& table, int first) {
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const int tiles = table.pair(first + p).tiles;
      const int one = tiles >> 8 & 255;
      const int other = tiles >> 16 & 255;
      a[p] = word(ring.tile(tiles & 255));
      b[p] = word(ring.tile(one), (other - one) * Ring::kBytesTile);
    }
    clear_sums(sums);
  }
  /// Makes the descriptors of a place.
  __device__ __forceinline__ void point_at(int place) {
    const unsigned ahead = place * (Ring::kBytesPlace / 16);
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      of_a[p].point_at(a[p] + ahead);
      of_b[p].point_at(b[p] + ahead);
    }
  }
  /// Queues the products of a chunk as a group.
  __device__ __forceinline__ void multiply() {
    ptx::begin_products();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int p = 0; p < kPairs; ++p)
        ptx::queue_product<Config::operands, 1, 1>(sums[p], of_a[p].of[step], of_b[p].of[step], 1);
    ptx::commit_products();
  }
  /// An optimization barrier: nothing reads sums earlier, or writes them later.
  __device__ __forceinline__ void pin() { ptx::pin(sums); }
  /// Adds the sums of all slices, in the CTA that arrives last, and returns true there.
  __device__ __forceinline__ bool combine(const Sliced& sliced, int slices) {
    const int place = static_cast<int>(threadIdx.x) * 4;
#pragma unroll
    for (int p = 0; p < kPairs; ++p)
#pragma unroll
      for (int v = 0; v < kSums; v += 4) {
        const float quad[4] = {sums[p][v], sums[p][v + 1], sums[p][v + 2], sums[p][v + 3]};
        ptx::store_global(sliced.own + (p * kSums + v) * GroupedWarps::kThreads + place, quad);
        sums[p][v] = sums[p][v + 1] = sums[p][v + 2] = sums[p][v + 3] = 0;
      }
    if (!sliced.arrives_last(slices)) return false;
#pragma unroll 1
    for (int slice = 0; slice < slices; ++slice) {
      const float* const part = sliced.parts + static_cast<long long>(slice) * Sliced::kPart + place;
#pragma unroll
      for (int p = 0; p < kPairs; ++p)
#pragma unroll
        for (int v = 0; v < kSums; v += 4) {
          float quad[4];
          ptx::load_relaxed(part + (p * kSums + v) * GroupedWarps::kThreads, quad);
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[p][v + i] += quad[i];
        }
    }
    return true;
  }
  /// Writes dw of the pieces that there are.
  __device__ __forceinline__ void store(const typename Config::Table& table, int first,
                                        typename Config::Output::Element* dw,
                                        const SddmmEpilogue<Config>& epilogue) {
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const PiecePair pair = table.pair(first + p);
      if (pair.tiles >> 24 == 0)
        store_pieces<false>(pair, sums[p], dw, epilogue);
      else
        store_pieces<true>(pair, sums[p], dw, epilogue);
    }
  }

 private:
  using Element = typename Config::Output::Element;

  /// The half of a descriptor that depends on where its tile is, and how far ahead the next one.
  __device__ static __forceinline__ unsigned word(unsigned shared, int ahead = 0) {
    return static_cast<unsigned>(swizzled_descriptor<Ring::kLineBytes>(shared, ahead));
  }

  template <int kCount>
  __device__ static __forceinline__ void write(Element* place, float (&values)[kCount],
                                               const SddmmEpilogue<Config>& epilogue) {
    if constexpr (Config::scales) {
#pragma unroll
      for (int v = 0; v < kCount; ++v) values[v] *= epilogue.alpha;
    }
    add_old(place, values, epilogue);
    Config::Output::write(place, values);
  }
  /// Writes the pieces of a pair. Where they share dy, rows of a product are outputs, else inputs (kTurned).
  template <bool kTurned>
  __device__ static __forceinline__ void store_pieces(const PiecePair& pair, const float (&sums)[kSums],
                                                      Element* dw, const SddmmEpilogue<Config>& epilogue) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int turn = lane / 4 % kInterleave;  // turned: which of kInterleave lanes, whose rows are neighbours
    const int out = turn / 2 * 8 + lane % 4 * 2 + turn % 2;
    const int within =
        kTurned ? out * Config::block_in + fragment_row(lane) - turn
                : fragment_row(lane) * Config::block_in + fragment_column<kInterleave, kExchanges>(lane, 0);
    enum : int {
      kOfRow = kTurned ? 1 : Config::block_in,  ///< of a product, elements of dw
      kOfColumn = kTurned ? Config::block_in : 1,
    };
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      const int at = piece == 0 ? pair.first : pair.second;
      if (at < 0) continue;
      Element* const to = dw + static_cast<long long>(at) * 64 + within;
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < 16; i += kInterleave) {
          float values[kInterleave];
#pragma unroll
          for (int v = 0; v < kInterleave; ++v) values[v] = sums[fragment_value(half, piece * 16 + i + v)];
          if constexpr (kTurned) {
            transpose_values(lane, values);
          } else if constexpr (kExchanges) {
            exchange_halves(lane, values[0], values[2]);
            exchange_halves(lane, values[1], values[3]);
          }
          write(to + half * 8 * kOfRow + 4 * i * kOfColumn, values, epilogue);
        }
    }
  }

  float sums[kPairs][kSums];
  unsigned a[kPairs];  ///< words of the descriptors of the first place
  unsigned b[kPairs];
  Descriptors of_a[kPairs];  ///< of the chunk that is multiplied next
  Descriptors of_b[kPairs];
};

/// What a warpgroup multiplies of a group.
template <class Config>
__device__ __forceinline__ void multiply_group(const GroupedRing<Config>& ring,
                                               typename GroupedRing<Config>::Place& at, int warpgroup,
                                               int group, const typename Config::Table& table, int chunks,
                                               int slice, int slices, typename Config::Output::Element* dw,
                                               const SddmmEpilogue<Config>& epilogue) {
  using Tile = GroupedTile<Config>;
  enum : unsigned { kNothing = 1 };  // the address of no barrier
  const int first = (group * GroupedWarps::kCount + warpgroup) * Tile::kPairs;
  Tile tile(ring, table, first);
  const bool arrives = threadIdx.x % 32 == 0;
  unsigned read = kNothing;  // where to say that what the queued products read is free
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    at.advance();
    tile.point_at(at.place);
    const unsigned full = ring.barriers.full(at.place);
    const unsigned empty = computed_here(ring.barriers.empty(at.place));
    // NOTES: twice, since ptxas moves descriptors to the products past the first branch (13.0;
    // bench/sass.py).
    ptx::wait_for_phase(full, at.parity);
    ptx::wait_for_phase(full, at.parity);
    tile.multiply();
    ptx::wait_products<1>();
    if (read != kNothing && arrives) ptx::arrive(read);
    read = empty;
  }
  ptx::wait_products<0>();
  tile.pin();
  if (read != kNothing && arrives) ptx::arrive(read);
  if constexpr (Config::slices > 1)
    if (slices > 1 && !tile.combine(SlicedGroup<Config>(epilogue.workspace, group, slice), slices)) return;
  tile.store(table, first, dw, epilogue);
}

template <class Config>
__device__ __forceinline__ void store_sum_of_dy(int out, float sum, const SddmmEpilogue<Config>& epilogue) {
  float* const place = epilogue.dbias + out;
  *place = scaled_sum(epilogue, sum, place);
}

/// What a warp adds of a group's dy.
template <class Config>
__device__ __forceinline__ void add_group(const GroupedRing<Config>& ring,
                                          typename GroupedRing<Config>::Place& at, int warp, int group,
                                          const typename Config::Table& table, int chunks, int slice,
                                          int slices, const SddmmEpilogue<Config>& epilogue) {
  const PieceGroup of = table.group(group);
  GroupedBiasSums<Config> bias(warp, of.summed);
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    at.advance();
    ptx::wait_for_phase(ring.barriers.full(at.place), at.parity);
    bias.add(ring, at.place);
    __syncwarp();  // all lanes have read dy
    if (threadIdx.x % 32 == 0) ptx::arrive(ring.barriers.empty(at.place));
  }
  if (Config::slices > 1 && slices > 1) {
    const SlicedGroup<Config> sliced(epilogue.workspace, group, slice);
    bias.each([&](int tile, int feature, float sum) {
      const float one[1] = {sum};
      ptx::store_global(sliced.own + sliced.sum_of_dy(tile, feature), one);
    });
    if (!sliced.arrives_last(slices)) return;
    bias.each([&](int tile, int feature, float) {
      float sum = 0;
#pragma unroll 1
      for (int other = 0; other < slices; ++other) {
        float part[1];
        ptx::load_relaxed(
            sliced.parts + static_cast<long long>(other) * sliced.kPart + sliced.sum_of_dy(tile, feature),
            part);
        sum += part[0];
      }
      store_sum_of_dy(table.tile(of.first + tile) * 64 + feature, sum, epilogue);
    });
  } else {
    bias.each([&](int tile, int feature, float sum) {
      store_sum_of_dy(table.tile(of.first + tile) * 64 + feature, sum, epilogue);
    });
  }
}

/// Config names what `sddmm` needs of linear layers of whole blocks, without gates and derivatives; width
/// (pieces of a group), place_tiles (of a place of the ring), interleave (neighbouring inputs of a thread, of
/// 8 bytes) and operands (a ptx::WgmmaOperands). Maps are of x and dy of each pair in turn, in boxes of a
/// chunk's batch rows and 64 features.
template <class Config, class... Maps>
__device__ __forceinline__ void sddmm_grouped(const ActivationPairs& pairs,
                                              typename Config::Output::Element* dw, int n, long long,
                                              long long, long long, const SddmmEpilogue<Config>& epilogue,
                                              typename Config::Table table, const Maps&... maps) {
  using Ring = GroupedRing<Config>;
  const int worker = static_cast<int>(blockIdx.x) / Config::slices;
  const int own_slice = static_cast<int>(blockIdx.x) % Config::slices;
  const int slices = slices_of<Config>(n);
  const BatchSlice slice = slice_of<Config>(n, own_slice, slices);
  const int first = table.worker(worker);
  const int end = table.worker(worker + 1);
  const Ring ring;
  if (threadIdx.x == 0)
    ring.barriers.make(
        [](int) { return GroupedWarps::kWarps + (Config::has_bias_gradient ? GroupedWarps::kAdding : 0); });
  if constexpr (Config::overlaps) {
    ptx::wait_for_earlier_launches();
    ptx::let_next_launch_begin();
  }
  if (own_slice >= slices) return;
  __syncthreads();
  const int chunks = pairs.count * ((slice.count + Config::chunk - 1) / Config::chunk);
  GroupedWarps::run<1 + GroupedWarps::kAdding, GroupedWarps::feeding_registers(SlicedGroup<Config>::kSums)>(
      [&] {
        const int warp = static_cast<int>(threadIdx.x) / 32 - GroupedWarps::kWarps;
        if (warp == 0) {
          typename Ring::Place at = Ring::Place::first();  // that is filled next
#pragma unroll 1
          for (int group = first; group < end; ++group)
            load_group<Config>(ring, at, table.group(group), table, pairs.count, slice, maps...);
        } else if constexpr (Config::has_bias_gradient) {
          typename Ring::Place at = Ring::Place::before_first();  // that is read
#pragma unroll 1
          for (int group = first; group < end; ++group)
            add_group<Config>(ring, at, warp - 1, group, table, chunks, own_slice, slices, epilogue);
        }
      },
      [&] {
        const int warpgroup = GroupedWarps::own();
        typename Ring::Place at = Ring::Place::before_first();
#pragma unroll 1
        for (int group = first; group < end; ++group)
          multiply_group<Config>(ring, at, warpgroup, group, table, chunks, own_slice, slices, dw, epilogue);
      });
}

}  // namespace sparsekiln
