#pragma once

#include "halo_rings.cuh"
#include "output.cuh"
#include "piece_groups.cuh"

// SDDMM of convolutions on the tensor cores of sm_90a, accumulated in float32, where a CTA sums many blocks
// at once, of any taps.
//
// Blocks are cut into pieces of 32 inputs, and 32 outputs or 64, of one tap (piece_groups.cuh). A place of
// the ring is what the pieces of a group read for a tile of positions, eight wide (halo_rings.cuh): the tile
// itself of dy, for each of the group's rows, and the tile with its border of x, for each column: all taps of
// a column read the same box. A position is a line of 64 bytes.
//
//   place   │ dy: tile │ tile │ tile │ x: box with border │ box with border │
//
// A product is of two pieces of one row, whose k is positions: A is the lines of x that each of the two
// reads, 32 inputs each, and B the tile of dy. wgmma transposes both. Rows of a sum are inputs, its columns
// outputs. Two rows of the tile are 16 positions, a step: a tap's operand begins at a later position, and
// the next eight positions of k are a row of the box later.
//
// CTAs that share a group have a slice of the tiles each, and write float32 sums to the workspace, in the
// order of dw. `sum_slices`, a kernel of its own, adds them.
//
// Exact order: as the hardware adds 16 positions, in ascending order of tiles and rows of a tile; then
// slices.

namespace sparsekiln {

/// The ring of a CTA. What taps displace is called x here, and the other operand dy.
template <class Config>
struct HaloPairRing : PieceRing<Config, 16, Config::tile_n, Config::piece_out / 32, Config::place_bytes> {
  using Box = HaloBox<Config>;
  enum : int {
    kLine = Box::kLine,
    kBytesDy = HaloPairRing::kBoxesDy * HaloPairRing::kBytesBoxDy,  ///< of a row of the group
  };

  /// Where a tile of a group is in the first place: those of dy are in front.
  __device__ __forceinline__ unsigned tile(int number, int of_dy) const {
    return this->tiles + min(number, of_dy) * kBytesDy + max(number - of_dy, 0) * Box::kBytes;
  }
};

/// The sums of the pairs of pieces of a warpgroup.
template <class Config>
class HaloPairSums {
 public:
  using Ring = HaloPairRing<Config>;
  using Box = typename Ring::Box;
  enum : int {
    kPairs = Config::width / (2 * PieceWarps::kCount),
    kSums = Config::piece_out / 2,  ///< of a thread for a pair
    kSteps = Config::tile_n / 16,
    kInterleave = 4,
    kWaits = 1,
    kAheadDy = Config::piece_out > Ring::kLine ? int{Ring::kBytesBoxDy} : 0,  ///< to the next 32 outputs
  };

  /// Pairs from `first` on. Descriptors are those of one lane, so that they are uniform.
  __device__ __forceinline__ HaloPairSums(const Ring& ring, const typename Config::Table& table, int first,
                                          const PieceGroup& group) {
    const int of_dy = group.of_dy;
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const PiecePair pair = table.pair(first + p);
      const unsigned one = place_of_piece(ring, pair.tiles >> 8 & 255, of_dy, pair.taps & 0xffff);
      const unsigned other = place_of_piece(ring, pair.tiles >> 16 & 255, of_dy, pair.taps >> 16);
      x[p] = descriptor_word<Box::kLineBytes, Box::kPitch>(one, static_cast<int>(other - one));
      dy[p] = descriptor_word<Box::kLineBytes>(ring.tile(pair.tiles & 255, of_dy), kAheadDy);
    }
    clear_sums(sums);
  }
  __device__ __forceinline__ void point_at(int place) {
    ahead = computed_here(static_cast<unsigned>(place) * (Ring::kBytesPlace / 16));
  }
  __device__ __forceinline__ void multiply() {
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
  __device__ __forceinline__ void pin() { ptx::pin(sums); }
  /// Calls use(element, values) for each four neighbouring values of the pieces that there are: where the
  /// first one is in dw.
  template <class Use>
  __device__ __forceinline__ void each(const typename Config::Table& table, int first, Use use) const {
    const int lane = own_lane();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int out = transposed_column<kInterleave>(lane);
    const int in = warp % 2 * 16 + lane / 4 - transposed_turn<kInterleave>(lane);
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
          copy_values(sums[p], half, i, values);
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
    return descriptor_of_word<Box::kLineBytes, kPitch>(word + step * (2 * kPitch / 16));
  }

  /// The lines of x that a piece reads of the first place.
  __device__ static __forceinline__ unsigned place_of_piece(const Ring& ring, int tile, int of_dy, int tap) {
    return ring.tile(tile, of_dy) + Box::displacement(tap);
  }

  float sums[kPairs][kSums];
  unsigned x[kPairs];  ///< words of the descriptors of the first place
  unsigned dy[kPairs];
  unsigned ahead;  ///< to the place of the chunk that is multiplied next
};

/// The sums of a slice in the workspace: those of dw, in its order, and of dy, by outputs.
template <class Config>
struct SliceSums {
  using Table = typename Config::Table;
  __device__ static __forceinline__ long long elements(const Table& table) {
    constexpr int kOfBlock = Config::block_out * Config::block_in;
    if constexpr (Config::attached)
      return static_cast<long long>(table.blocks()) * kOfBlock;
    else
      return static_cast<long long>(Config::blocks) * kOfBlock;
  }
  __device__ static __forceinline__ long long all(const Table& table) {
    if constexpr (!Config::has_bias_gradient)
      return elements(table);
    else if constexpr (Config::attached)
      return elements(table) + table.features_of_y;
    else
      return elements(table) + Config::outputs;
  }
  __device__ static __forceinline__ float* of(const SddmmEpilogue<Config>& epilogue, const Table& table,
                                              int slice) {
    return reinterpret_cast<float*>(after_counters<Config>(epilogue.workspace, table)) + slice * all(table);
  }
};

/// What a CTA does with its groups, for a slice of the tiles of positions.
template <class Config>
struct HaloPairWork {
  using Ring = HaloPairRing<Config>;
  using Sums = HaloPairSums<Config>;
  enum : int { kOtherRegisters = 32 };

  const int slice;
  const int first_tile;  ///< of positions
  const int end_tile;
  typename Config::Output::Element* const dw;
  const SddmmEpilogue<Config>& epilogue;
  const typename Config::Table& table;

  __device__ __forceinline__ int chunks() const { return end_tile - first_tile; }
  /// Rows without blocks have such groups.
  __device__ static __forceinline__ bool only_sums_dy(const PieceGroup& group) {
    return Config::has_bias_gradient && group.tiles == group.of_dy;
  }

  /// Fills the ring for a group: each lane queues copies of boxes of its own.
  __device__ __forceinline__ void load(const Ring& ring, typename Ring::Place& at, const PieceGroup& group,
                                       const TensorMap& map_x, const TensorMap& map_dy) const {
    using Box = typename Ring::Box;
    const int lane = own_lane();
    const int of_x = group.tiles - group.of_dy;
    const int boxes_of_dy = group.of_dy * Ring::kBoxesDy;
    const int bytes = group.of_dy * Ring::kBytesDy + of_x * Box::kCopied;
#pragma unroll 1
    for (int number = first_tile; number < end_tile; ++number) {
      const HaloPlace<Config> tile(number);
      const unsigned full = ring.barriers.full(at.place);
      const unsigned to = at.place * Ring::kBytesPlace;
      if (lane == 0) ring.barriers.expect(at.place, at.parity, bytes);
      __syncwarp();
#pragma unroll 1
      for (int box = lane; box < boxes_of_dy; box += 32) {
        const int line = box % Ring::kBoxesDy;
        const int out = table.tile(group.first + box / Ring::kBoxesDy) * Config::piece_out;
        ptx::copy_box_of_image(ring.tiles + to + box * Ring::kBytesBoxDy, map_dy, out + line * Ring::kLine,
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
  /// Writes dw of the pairs from `first` on, or the sums of this slice.
  __device__ __forceinline__ void store(int, int first, const Sums& sums) const {
    if (most_slices<Config>(table) > 1) {
      float* const to = SliceSums<Config>::of(epilogue, table, slice);
      sums.each(table, first,
                [&](long long element, float(&values)[4]) { ptx::store_global(to + element, values); });
    } else {
      sums.each(table, first,
                [&](long long element, float(&values)[4]) { write_scaled(dw + element, values, epilogue); });
    }
  }
  /// Writes the gradient of the bias, or the sums of this slice, from a warp's sums of dy.
  template <class Bias>
  __device__ __forceinline__ void store_bias(int, const PieceGroup& group, const Bias& bias) const {
    bias.each([&](int box, int feature, float sum) {
      const int tile = table.tile(group.first + box / Ring::kBoxesDy);
      const int output = tile * Config::piece_out + box % Ring::kBoxesDy * Ring::kLine + feature;
      if (most_slices<Config>(table) > 1) {
        const float one[1] = {sum};
        ptx::store_global(
            SliceSums<Config>::of(epilogue, table, slice) + SliceSums<Config>::elements(table) + output, one);
      } else {
        write_bias(output, sum, epilogue);
      }
    });
  }
};

/// Config names what `sddmm` needs of convolutions of whole blocks, without block scales and derivatives;
/// tile_n (positions of a tile), piece_out (32 or 64), width (pieces of a group), blocks (of dw), outputs,
/// place_bytes (of a place of the ring), operands (a ptx::WgmmaOperands) and what a HaloBox needs. Maps are
/// of what taps displace and of the other operand, in boxes of 32 features. A launch has one pair of them.
template <class Config>
__device__ __forceinline__ void sddmm_halo(const ActivationPairs&, typename Config::Output::Element* dw,
                                           int n, long long, long long, long long,
                                           const SddmmEpilogue<Config>& epilogue,
                                           typename Config::Table table, const TensorMap& map_x,
                                           const TensorMap& map_dy) {
  const int most = most_slices<Config>(table);
  const int slice = static_cast<int>(blockIdx.x) % most;
  const int tiles = n * HaloPlace<Config>::kOfImage;
  const int slices = slices_of_chunks<Config>(tiles, most);
  const int first = first_chunk(tiles, slice, slices);
  const int end = first_chunk(tiles, slice + 1, slices);
  const auto work = [&] { return HaloPairWork<Config>{slice, first, end, dw, epilogue, table}; };
  sum_groups<Config, HaloPairWork<Config>>(table, slice < slices, work, map_x, map_dy);
}

/// A kernel after `sddmm_halo`, with the same grid, where several CTAs share a group: adds what slices have
/// of each element of dw, and of each output of dy, in ascending order.
template <class Config>
__device__ __forceinline__ void sum_slices(typename Config::Output::Element* dw, int n,
                                           const SddmmEpilogue<Config>& epilogue,
                                           typename Config::Table table) {
  using Sums = SliceSums<Config>;
  wait_for_earlier_launches<Config>();
  const int most = most_slices<Config>(table);
  if (Config::attached && most == 1) return;  // nothing is shared
  const int slices = slices_of_chunks<Config>(n * HaloPlace<Config>::kOfImage, most);
  const long long elements = Sums::elements(table);
  const long long all = Sums::all(table);
  const int threads = static_cast<int>(gridDim.x) * Config::threads;
  const int thread = static_cast<int>(blockIdx.x) * Config::threads + static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (long long element = 4ll * thread; element < all; element += 4ll * threads) {
    float sums[4] = {};
#pragma unroll 8
    for (int slice = 0; slice < slices; ++slice) {
      float values[4];
      ptx::load_global(Sums::of(epilogue, table, slice) + element, values);
#pragma unroll
      for (int v = 0; v < 4; ++v) sums[v] += values[v];
    }
    if (!Config::has_bias_gradient || element < elements) {
      write_scaled(dw + element, sums, epilogue);
    } else {
      float* const place = epilogue.dbias + (element - elements);
#pragma unroll
      for (int v = 0; v < 4; ++v) place[v] = scaled_sum(epilogue, sums[v], place + v);
    }
  }
}

}  // namespace sparsekiln
