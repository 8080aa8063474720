#pragma once

#include "halo_rings.cuh"
#include "output.cuh"
#include "piece_groups.cuh"
#include "sddmm.cuh"
#include "wgmma_descriptors.cuh"

// SDDMM of convolutions on the tensor cores of sm_90a, accumulated in float32, where a CTA sums many blocks
// at once, of any taps.
//
// Blocks are cut into pieces of 32 inputs, and 32 outputs or 64, of one tap. A CTA has groups of up to
// Config::width pieces (compiler/block_groups.h), one after the other. A place of the ring is what the pieces
// of a group read for a tile of positions, eight wide (halo_rings.cuh): the tile itself of dy, for each of
// the group's rows, and the tile with its border of x, for each column: all taps of a column read the same
// box. A position is a line of 64 bytes.
//
//   place   │ dy: tile │ tile │ tile │ x: box with border │ box with border │
//
// A product is of two pieces of one row, whose k is positions: A is the lines of x that each of the two
// reads, 32 inputs each, and B the tile of dy. wgmma transposes both. Rows of a sum are inputs, its columns
// outputs. Two rows of the tile are 16 positions, a step: a tap's operand begins at a later position, and
// the next eight positions of k are a row of the box later.
//
//   warpgroups 0 to 2   multiply, each its third of the pairs, whose sums are in registers
//   warpgroup 3         one warp fills the ring; the other three sum dy where the gradient of a bias is asked
//
// Where pieces are few, several CTAs share a group, a slice of the tiles each, and write float32 sums to the
// workspace, in the order of dw. `sum_slices`, a kernel of its own, adds them.
//
// Exact order: as the hardware adds 16 positions, in ascending order of tiles and rows of a tile; then
// slices.

namespace sparsekiln {

/// The four warpgroups of a CTA: three that multiply, and one of which a warp fills the ring, and three sum
/// dy where the gradient of a bias is asked for.
struct HaloPairWarps : WarpgroupsOf<3> {
  enum : int { kAdding = 3 };
};

/// The ring of a CTA. What taps displace is called x here, and the other operand dy.
template <class Config>
struct HaloPairRing {
  using Box = HaloBox<Config>;
  enum : int {
    kLine = Box::kLine,
    kBoxesDy = Config::piece_out / kLine,
    kBytesBoxDy = Config::tile_n * Box::kLineBytes,
    kBytesDy = kBoxesDy * kBytesBoxDy,  ///< of a row of the group
    kBytesPlace = Config::place_bytes,
  };
  using Place = RingPlace<Config::stages>;

  const unsigned first = swizzled_shared();
  const RingBarriers<Config::stages> barriers;

  /// Where a tile of a group is in the first place: those of dy are in front.
  __device__ __forceinline__ unsigned tile(int number, int of_dy) const {
    return first + min(number, of_dy) * kBytesDy + max(number - of_dy, 0) * Box::kBytes;
  }
};

/// Tiles of positions.
struct TileRange {
  int first;
  int end;
};

/// Fills the ring for a group: each lane queues copies of boxes of its own.
template <class Config>
__device__ __forceinline__ void load_pieces(const HaloPairRing<Config>& ring,
                                            typename HaloPairRing<Config>::Place& at, const PieceGroup& group,
                                            const typename Config::Table& table, const TileRange& tiles,
                                            const TensorMap& map_x, const TensorMap& map_dy) {
  using Ring = HaloPairRing<Config>;
  using Box = typename Ring::Box;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int of_x = group.tiles - group.of_dy;
  const int boxes_of_dy = group.of_dy * Ring::kBoxesDy;
  const int bytes = group.of_dy * Ring::kBytesDy + of_x * Box::kCopied;
#pragma unroll 1
  for (int number = tiles.first; number < tiles.end; ++number) {
    const HaloPlace<Config> tile(number);
    const unsigned full = ring.barriers.full(at.place);
    const unsigned to = at.place * Ring::kBytesPlace;
    if (lane == 0) {
      ptx::wait_for_phase(ring.barriers.empty(at.place), at.parity ^ 1);
      ptx::arrive_and_expect(full, bytes);
    }
    __syncwarp();
#pragma unroll 1
    for (int box = lane; box < boxes_of_dy; box += 32) {
      const int line = box % Ring::kBoxesDy;
      const int out = table.tile(group.first + box / Ring::kBoxesDy) * Config::piece_out;
      ptx::copy_box_of_image(ring.first + to + box * Ring::kBytesBoxDy, map_dy, out + line * Ring::kLine,
                             tile.w, tile.h, tile.d, tile.image, full);
    }
#pragma unroll 1
    for (int box = lane; box < of_x; box += 32) {
      const int column = table.tile(group.first + group.of_dy + box);
      Box::copy(ring.tile(group.of_dy + box, group.of_dy) + to, map_x,
                column / Config::kernel_d * Ring::kLine, tile,
                column % Config::kernel_d * (Config::kernel_h * Config::kernel_w), full);
    }
    at.advance();
  }
}

/// The sums of tiles of dy over all positions, which three warps have in shared memory, as those of
/// sddmm_grouped.cuh: each has every third box of 32 features. A lane adds two features of every other
/// position.
template <class Config>
class HaloBiasSums {
 public:
  using Ring = HaloPairRing<Config>;

  /// What a group sums.
  __device__ __forceinline__ HaloBiasSums(int of_warp, int summed)
      : warp(of_warp), boxes(summed * Ring::kBoxesDy) {
    for (int box = warp; box < boxes; box += HaloPairWarps::kAdding)
      if (is_first_half()) at(box) = float2{0, 0};
  }
  /// Adds what a place of the ring has.
  __device__ __forceinline__ void add(const Ring& ring, int place) {
    const int word = lane() % 16;
#pragma unroll 1
    for (int box = warp; box < boxes; box += HaloPairWarps::kAdding) {
      const unsigned from = ring.first + place * Ring::kBytesPlace + box * Ring::kBytesBoxDy;
      float2 sum{0, 0};
#pragma unroll 2
      for (int position = lane() / 16; position < Config::tile_n; position += 2) {
        const int unit = word / 4 ^ position / 2 % 4;  // as lines of 64 bytes are swizzled
        unsigned bits;
        ptx::load_word<0>(bits, from + position * Ring::Box::kLineBytes + unit * 16 + word % 4 * 4);
        sum.x += Config::Operand::of_word(bits, 0);
        sum.y += Config::Operand::of_word(bits, 1);
      }
      sum.x += __shfl_xor_sync(0xffffffff, sum.x, 16);
      sum.y += __shfl_xor_sync(0xffffffff, sum.y, 16);
      if (!is_first_half()) continue;
      at(box).x += sum.x;
      at(box).y += sum.y;
    }
  }
  /// Calls use(box, feature, sum) for each sum of this lane.
  template <class Use>
  __device__ __forceinline__ void each(Use use) const {
#pragma unroll 1
    for (int box = warp; box < boxes; box += HaloPairWarps::kAdding) {
      if (!is_first_half()) continue;
      use(box, 2 * lane(), at(box).x);
      use(box, 2 * lane() + 1, at(box).y);
    }
  }

 private:
  __device__ static __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static __forceinline__ bool is_first_half() { return lane() < 16; }
  /// The two sums of a lane of the first half.
  __device__ static __forceinline__ float2& at(int box) {
    __shared__ float2 sums[Config::width * Ring::kBoxesDy][16];
    return sums[box][lane()];
  }

  const int warp;
  const int boxes;
};

/// The pairs of pieces of a warpgroup.
template <class Config>
class HaloPairs {
 public:
  using Ring = HaloPairRing<Config>;
  using Box = typename Ring::Box;
  enum : int {
    kPairs = Config::width / (2 * HaloPairWarps::kCount),
    kSums = Config::piece_out / 2,  ///< of a thread for a pair
    kSteps = Config::tile_n / 16,
    kInterleave = 4,
    kAheadDy = Config::piece_out > Ring::kLine ? int{Ring::kBytesBoxDy} : 0,  ///< to the next 32 outputs
  };

  /// Pairs from `first` on. Descriptors are those of one lane, so that they are uniform.
  __device__ __forceinline__ HaloPairs(const Ring& ring, const typename Config::Table& table, int first,
                                       int of_dy) {
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const PiecePair pair = table.pair(first + p);
      const unsigned one = place_of_piece(ring, pair.tiles >> 8 & 255, of_dy, pair.taps & 0xffff);
      const unsigned other = place_of_piece(ring, pair.tiles >> 16 & 255, of_dy, pair.taps >> 16);
      x[p] = word<Box::kPitch>(one, static_cast<int>(other - one));
      dy[p] = word<8 * Box::kLineBytes>(ring.tile(pair.tiles & 255, of_dy), kAheadDy);
    }
    clear_sums(sums);
  }
  /// Queues the products of a tile, whose place in the ring is so much further, as a group.
  __device__ __forceinline__ void multiply(unsigned ahead) {
    ptx::begin_products();
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const unsigned of_x = computed_here(x[p] + ahead);
      const unsigned of_dy = computed_here(dy[p] + ahead);
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        ptx::queue_product<Config::operands, 1, 1>(sums[p], descriptor<Box::kPitch>(of_x, step),
                                                   descriptor<8 * Box::kLineBytes>(of_dy, step), 1);
    }
    ptx::commit_products();
  }
  /// An optimization barrier: nothing reads sums earlier, or writes them later.
  __device__ __forceinline__ void pin() { ptx::pin(sums); }
  /// Calls use(element, values) for each four neighbouring values of the pieces that there are: where the
  /// first one is in dw.
  template <class Use>
  __device__ __forceinline__ void each(const typename Config::Table& table, int first, Use use) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int turn = lane / 4 % kInterleave;  // which of kInterleave lanes, whose inputs are neighbours
    const int out = turn / 2 * 8 + lane % 4 * 2 + turn % 2;
    const int in = warp % 2 * 16 + lane / 4 - turn;
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const PiecePair pair = table.pair(first + p);
      const int at = warp < 2 ? pair.first : pair.second;
      if (at < 0) continue;
      const long long of_piece = static_cast<long long>(at) * Ring::kLine + out * Config::block_in + in;
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < kSums / 2; i += kInterleave) {
          float values[kInterleave];
#pragma unroll
          for (int v = 0; v < kInterleave; ++v) values[v] = sums[p][fragment_value(half, i + v)];
          transpose_values(lane, values);
          use(of_piece + 4 * i * Config::block_in + half * 8, values);
        }
    }
  }

 private:
  /// The descriptor of a step, from the half that depends on where its operand is: two rows of the tile are a
  /// step.
  template <int kPitch>
  __device__ static __forceinline__ unsigned long long descriptor(unsigned word, int step) {
    return swizzled_descriptor<Box::kLineBytes, kPitch>(0) | word + step * (2 * kPitch / 16);
  }

  /// The lines of x that a piece reads of the first place.
  __device__ static __forceinline__ unsigned place_of_piece(const Ring& ring, int tile, int of_dy, int tap) {
    return ring.tile(tile, of_dy) + Box::displacement(tap);
  }
  template <int kPitch>
  __device__ static __forceinline__ unsigned word(unsigned shared, int ahead) {
    return static_cast<unsigned>(swizzled_descriptor<Box::kLineBytes, kPitch>(shared, ahead));
  }

  float sums[kPairs][kSums];
  unsigned x[kPairs];  ///< words of the descriptors of the first place
  unsigned dy[kPairs];
};

/// The sums of a slice in the workspace: those of dw, in its order, and of dy, by outputs.
template <class Config>
struct SliceSums {
  enum : long long {
    kElements = static_cast<long long>(Config::blocks) * (Config::block_out * Config::block_in),
    kSums = kElements + (Config::has_bias_gradient ? Config::outputs : 0),
  };
  __device__ static __forceinline__ float* of(const SddmmEpilogue<Config>& epilogue, int slice) {
    return reinterpret_cast<float*>(static_cast<char*>(epilogue.workspace) + Config::counter_bytes) +
           slice * kSums;
  }
};

/// Writes four neighbouring elements of dw.
template <class Config>
__device__ __forceinline__ void write_values(typename Config::Output::Element* to, float (&values)[4],
                                             const SddmmEpilogue<Config>& epilogue) {
  if constexpr (Config::scales) {
#pragma unroll
    for (int v = 0; v < 4; ++v) values[v] *= epilogue.alpha;
  }
  add_old(to, values, epilogue);
  Config::Output::write(to, values);
}

/// What a warpgroup multiplies of a group.
template <class Config>
__device__ __forceinline__ void multiply_pieces(const HaloPairRing<Config>& ring,
                                                typename HaloPairRing<Config>::Place& at, int warpgroup,
                                                int group, const typename Config::Table& table, int chunks,
                                                int slice, typename Config::Output::Element* dw,
                                                const SddmmEpilogue<Config>& epilogue) {
  using Pairs = HaloPairs<Config>;
  enum : unsigned { kNothing = 1 };  // the address of no barrier
  const PieceGroup of = table.group(group);
  const bool arrives = threadIdx.x % 32 == 0;
  if (Config::has_bias_gradient && of.tiles == of.of_dy) {  // of rows without blocks: dy is only summed
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      at.advance();
      ptx::wait_for_phase(ring.barriers.full(at.place), at.parity);
      if (arrives) ptx::arrive(ring.barriers.empty(at.place));
    }
    return;
  }
  const int first = (group * HaloPairWarps::kCount + warpgroup) * Pairs::kPairs;
  Pairs pairs(ring, table, first, of.of_dy);
  unsigned read = kNothing;  // where to say that what the queued products read is free
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    at.advance();
    const unsigned ahead =
        computed_here(static_cast<unsigned>(at.place) * (HaloPairRing<Config>::kBytesPlace / 16));
    const unsigned empty = computed_here(ring.barriers.empty(at.place));
    ptx::wait_for_phase(ring.barriers.full(at.place), at.parity);
    pairs.multiply(ahead);
    ptx::wait_products<1>();
    if (read != kNothing && arrives) ptx::arrive(read);
    read = empty;
  }
  ptx::wait_products<0>();
  pairs.pin();
  if (read != kNothing && arrives) ptx::arrive(read);
  if constexpr (Config::slices > 1) {
    float* const to = SliceSums<Config>::of(epilogue, slice);
    pairs.each(table, first,
               [&](long long element, float(&values)[4]) { ptx::store_global(to + element, values); });
  } else {
    pairs.each(table, first,
               [&](long long element, float(&values)[4]) { write_values(dw + element, values, epilogue); });
  }
}

/// What a warp adds of a group's dy.
template <class Config>
__device__ __forceinline__ void add_pieces(const HaloPairRing<Config>& ring,
                                           typename HaloPairRing<Config>::Place& at, int warp, int group,
                                           const typename Config::Table& table, int chunks, int slice,
                                           const SddmmEpilogue<Config>& epilogue) {
  using Ring = HaloPairRing<Config>;
  const PieceGroup of = table.group(group);
  HaloBiasSums<Config> bias(warp, of.summed);
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    at.advance();
    ptx::wait_for_phase(ring.barriers.full(at.place), at.parity);
    bias.add(ring, at.place);
    __syncwarp();  // all lanes have read dy
    if (threadIdx.x % 32 == 0) ptx::arrive(ring.barriers.empty(at.place));
  }
  bias.each([&](int box, int feature, float sum) {
    const int tile = table.tile(of.first + box / Ring::kBoxesDy);
    const int output = tile * Config::piece_out + box % Ring::kBoxesDy * Ring::kLine + feature;
    if constexpr (Config::slices > 1) {
      const float one[1] = {sum};
      ptx::store_global(SliceSums<Config>::of(epilogue, slice) + SliceSums<Config>::kElements + output, one);
    } else {
      float* const place = epilogue.dbias + output;
      *place = scaled_sum(epilogue, sum, place);
    }
  });
}

/// Config names what `sddmm` needs of convolutions of whole blocks, without gates and derivatives; tile_n
/// (positions of a tile), piece_out (32 or 64), width (pieces of a group), blocks (of dw), outputs,
/// place_bytes (of a place of the ring), operands (a ptx::WgmmaOperands) and what a HaloBox needs. Maps are
/// of what taps displace and of the other operand, in boxes of 32 features. A launch has one pair of them.
template <class Config>
__device__ __forceinline__ void sddmm_halo(const ActivationPairs&, typename Config::Output::Element* dw,
                                           int n, long long, long long, long long,
                                           const SddmmEpilogue<Config>& epilogue,
                                           typename Config::Table table, const TensorMap& map_x,
                                           const TensorMap& map_dy) {
  using Ring = HaloPairRing<Config>;
  const int worker = static_cast<int>(blockIdx.x) / Config::slices;
  const int slice = static_cast<int>(blockIdx.x) % Config::slices;
  const int tiles = n * HaloPlace<Config>::kOfImage;
  const int slices = slices_of_chunks<Config>(tiles);
  const TileRange own{first_chunk(tiles, slice, slices), first_chunk(tiles, slice + 1, slices)};
  const int first = table.worker(worker);
  const int end = table.worker(worker + 1);
  const Ring ring;
  if (threadIdx.x == 0)
    ring.barriers.make(
        [](int) { return HaloPairWarps::kWarps + (Config::has_bias_gradient ? HaloPairWarps::kAdding : 0); });
  if constexpr (Config::overlaps) {
    ptx::wait_for_earlier_launches();
    ptx::let_next_launch_begin();
  }
  if (slice >= slices) return;
  __syncthreads();
  HaloPairWarps::run<1 + HaloPairWarps::kAdding>(
      [&] {
        const int warp = static_cast<int>(threadIdx.x) / 32 - HaloPairWarps::kWarps;
        if (warp == 0) {
          typename Ring::Place at = Ring::Place::first();  // that is filled next
#pragma unroll 1
          for (int group = first; group < end; ++group)
            load_pieces<Config>(ring, at, table.group(group), table, own, map_x, map_dy);
        } else if constexpr (Config::has_bias_gradient) {
          typename Ring::Place at = Ring::Place::before_first();  // that is read
#pragma unroll 1
          for (int group = first; group < end; ++group)
            add_pieces<Config>(ring, at, warp - 1, group, table, own.end - own.first, slice, epilogue);
        }
      },
      [&] {
        const int warpgroup = __shfl_sync(0xffffffff, HaloPairWarps::own(), 0);
        typename Ring::Place at = Ring::Place::before_first();
#pragma unroll 1
        for (int group = first; group < end; ++group)
          multiply_pieces<Config>(ring, at, warpgroup, group, table, own.end - own.first, slice, dw,
                                  epilogue);
      });
}

/// A kernel after `sddmm_halo`, with the same grid, where several CTAs share a group: adds what slices have
/// of each element of dw, and of each output of dy, in ascending order.
template <class Config>
__device__ __forceinline__ void sum_slices(typename Config::Output::Element* dw, int n,
                                           const SddmmEpilogue<Config>& epilogue, typename Config::Table) {
  using Sums = SliceSums<Config>;
  if constexpr (Config::overlaps) {
    ptx::wait_for_earlier_launches();
    ptx::let_next_launch_begin();
  }
  const int slices = slices_of_chunks<Config>(n * HaloPlace<Config>::kOfImage);
  const int threads = static_cast<int>(gridDim.x) * Config::threads;
  const int thread = static_cast<int>(blockIdx.x) * Config::threads + static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (long long element = 4ll * thread; element < Sums::kSums; element += 4ll * threads) {
    float sums[4] = {};
#pragma unroll 8
    for (int slice = 0; slice < slices; ++slice) {
      float values[4];
      ptx::load_global(Sums::of(epilogue, slice) + element, values);
#pragma unroll
      for (int v = 0; v < 4; ++v) sums[v] += values[v];
    }
    if (!Config::has_bias_gradient || element < Sums::kElements) {
      write_values(dw + element, sums, epilogue);
    } else {
      float* const place = epilogue.dbias + (element - Sums::kElements);
#pragma unroll
      for (int v = 0; v < 4; ++v) place[v] = scaled_sum(epilogue, sums[v], place + v);
    }
  }
}

}  // namespace sparsekiln
