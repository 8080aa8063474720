#pragma once

#include "piece_groups.cuh"

// SDDMM on the tensor cores of sm_90a, accumulated in float32, where a CTA sums many blocks at once.
//
// Blocks are cut into pieces of 64 outputs and 64 inputs (piece_groups.cuh). A place of the ring is a chunk
// of batch rows of what the pieces of a group read: tiles of 64 features, of dy and then of x, in rows of 128
// bytes, one for each batch row. So a tile that several pieces share comes from L2 once. As in
// sddmm_wgmma.cuh, wgmma transposes both.
//
// A product is of two pieces, which share a tile: A is that tile, and B the other two, wherever they are in
// the place. Pieces of one row share dy, and are summed as they are in dw; those of one column share x, and
// are summed transposed.
//
// CTAs that share a group have a slice of the batch rows each. The last to arrive adds their sums in
// ascending order of slices.
//
// Exact order: as the hardware adds 16 batch rows, in ascending order of pairs and batch rows; then slices.

namespace sparsekiln {

/// The ring of a CTA.
template <class Config>
struct GroupedRing : PieceRing<Config, 32, Config::chunk, 1, Config::place_tiles * Config::chunk * 128> {
  enum : int { kTileFeatures = 64 };

  /// Where a tile is in the first place.
  __device__ __forceinline__ unsigned tile(int number) const {
    return this->tiles + number * GroupedRing::kBytesBoxDy;
  }
};

/// A group in the workspace, where slices of the batch meet: counters of all groups, then for each group and
/// slice the sums of its threads, four at a time next to each other, and those of dy.
template <class Config>
struct SlicedGroup {
  enum : int {
    kSums = 32 * Config::width / PieceWarps::kCount,  ///< of a thread
    kOfProducts = kSums * PieceWarps::kThreads,
    kPart = kOfProducts + 64 * Config::width,
    kThreads = PieceWarps::kThreads + (Config::has_bias_gradient ? 32 * PieceWarps::kAdding : 0),
  };
  unsigned* const counter;
  float* const parts;  ///< of all slices
  float* const own;

  __device__ __forceinline__ SlicedGroup(void* workspace, const typename Config::Table& table, int group,
                                         int slice)
      : counter(static_cast<unsigned*>(workspace) + group),
        parts(reinterpret_cast<float*>(after_counters<Config>(workspace, table)) +
              static_cast<long long>(group) * most_slices<Config>(table) * kPart),
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

/// The sums of the pairs of pieces of a warpgroup.
template <class Config>
class GroupedSums {
 public:
  using Ring = GroupedRing<Config>;
  using Sliced = SlicedGroup<Config>;
  enum : int {
    kPairs = Config::width / (2 * PieceWarps::kCount),
    kSums = 64,  ///< of a thread for a pair
    kSteps = Config::chunk / 16,
    kInterleave = Config::interleave,
    // NOTES: twice, since ptxas moves descriptors to the products past the first branch (13.0;
    // bench/sass.py).
    kWaits = 2,
  };
  /// A step along dy or x is 16 batch rows.
  using Descriptors = StepDescriptors<Ring::kLineBytes, kSteps, 2 * swizzled_unit(Ring::kLineBytes) / 16>;

  /// Pairs from `first` on. Descriptors are those of one lane, so that they are uniform.
  __device__ __forceinline__ GroupedSums(const Ring& ring, const typename Config::Table& table, int first,
                                         const PieceGroup&) {
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const int tiles = table.pair(first + p).tiles;
      const int one = tiles >> 8 & 255;
      const int other = tiles >> 16 & 255;
      a[p] = descriptor_word<Ring::kLineBytes>(ring.tile(tiles & 255));
      b[p] = descriptor_word<Ring::kLineBytes>(ring.tile(one), (other - one) * Ring::kBytesBoxDy);
    }
    clear_sums(sums);
  }
  __device__ __forceinline__ void point_at(int place) {
    const unsigned ahead = place * (Ring::kBytesPlace / 16);
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      of_a[p].point_at_word(a[p] + ahead);
      of_b[p].point_at_word(b[p] + ahead);
    }
  }
  __device__ __forceinline__ void multiply() {
    ptx::begin_products();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int p = 0; p < kPairs; ++p)
        ptx::queue_product<Config::operands, 1, 1>(sums[p], of_a[p].of[step], of_b[p].of[step], 1);
    ptx::commit_products();
  }
  __device__ __forceinline__ void pin() { ptx::pin(sums); }
  /// Adds the sums of all slices, in the CTA that arrives last, and returns true there.
  __device__ __forceinline__ bool combine(const Sliced& sliced, int slices) {
    const int place = static_cast<int>(threadIdx.x) * 4;
#pragma unroll
    for (int v = 0; v < kPairs * kSums; v += 4) {
      float* const of = sums[v / kSums] + v % kSums;
      const float quad[4] = {of[0], of[1], of[2], of[3]};
      ptx::store_global(sliced.own + v * PieceWarps::kThreads + place, quad);
      of[0] = of[1] = of[2] = of[3] = 0;
    }
    if (!sliced.arrives_last(slices)) return false;
#pragma unroll 1
    for (int slice = 0; slice < slices; ++slice) {
      const float* const part = sliced.parts + static_cast<long long>(slice) * Sliced::kPart + place;
#pragma unroll
      for (int v = 0; v < kPairs * kSums; v += 4) {
        float quad[4];
        ptx::load_relaxed(part + v * PieceWarps::kThreads, quad);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[v / kSums][v % kSums + i] += quad[i];
      }
    }
    return true;
  }
  /// Writes dw of the pieces that there are.
  __device__ __forceinline__ void store(const typename Config::Table& table, int first,
                                        typename Config::Output::Element* dw,
                                        const SddmmEpilogue<Config>& epilogue) const {
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

  /// Writes the pieces of a pair. Where they share dy, rows of a product are outputs, else inputs (kTurned).
  template <bool kTurned>
  __device__ static __forceinline__ void store_pieces(const PiecePair& pair, const float (&sums)[kSums],
                                                      Element* dw, const SddmmEpilogue<Config>& epilogue) {
    const int lane = own_lane();
    constexpr bool kExchanges = kInterleave == 4;
    const int within =
        kTurned ? transposed_column<kInterleave>(lane) * Config::block_in + fragment_row(lane) -
                      transposed_turn<kInterleave>(lane)
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
          copy_values(sums, half, piece * 16 + i, values);
          if constexpr (kTurned)
            transpose_values(lane, values);
          else
            gather_columns(lane, values);
          write_scaled(to + half * 8 * kOfRow + 4 * i * kOfColumn, values, epilogue);
        }
    }
  }

  float sums[kPairs][kSums];
  unsigned a[kPairs];  ///< words of the descriptors of the first place
  unsigned b[kPairs];
  Descriptors of_a[kPairs];  ///< of the chunk that is multiplied next
  Descriptors of_b[kPairs];
};

/// What a CTA does with its groups, for a slice of the batch rows of each pair of x and dy.
template <class Config>
struct GroupedWork {
  using Ring = GroupedRing<Config>;
  using Sums = GroupedSums<Config>;
  using Sliced = SlicedGroup<Config>;
  enum : int { kOtherRegisters = Sliced::kSums > 64 ? 32 : 104 };

  const ActivationPairs& pairs;
  const int slice;
  const int slices;
  const BatchSlice rows;
  const int chunks_of_pairs;
  typename Config::Output::Element* const dw;
  const SddmmEpilogue<Config>& epilogue;
  const typename Config::Table& table;

  __device__ __forceinline__ int chunks() const { return chunks_of_pairs; }
  __device__ static __forceinline__ bool only_sums_dy(const PieceGroup&) { return false; }

  /// Fills the ring for a group: each lane queues copies of a tile of its own.
  template <class... Maps>
  __device__ __forceinline__ void load(const Ring& ring, typename Ring::Place& at, const PieceGroup& group,
                                       const Maps&... maps) const {
    const int lane = own_lane();
    const bool has_tile = lane < group.tiles;
    const int column = has_tile ? table.tile(group.first + lane) * Ring::kTileFeatures : 0;
#pragma unroll 1
    for (int pair = 0; pair < pairs.count; ++pair) {
      const TensorMap* const map = map_at(2 * pair + (lane < group.of_dy ? 1 : 0), maps...);
#pragma unroll 1
      for (int row = 0; row < rows.count; row += Config::chunk) {
        const unsigned full = ring.barriers.full(at.place);
        if (lane == 0) ring.barriers.expect(at.place, at.parity, group.tiles * Ring::kBytesBoxDy);
        __syncwarp();
        if (has_tile)
          ptx::copy_box<1>(ring.tile(lane) + at.place * Ring::kBytesPlace, *map, column, rows.first + row,
                           full);
        at.advance();
      }
    }
  }
  /// Writes dw of a group's pairs from `first` on; where slices share the group, in the CTA that is last.
  __device__ __forceinline__ void store(int group, int first, Sums& sums) const {
    if constexpr (Config::slices > 1)
      if (slices > 1 && !sums.combine(Sliced(epilogue.workspace, table, group, slice), slices)) return;
    sums.store(table, first, dw, epilogue);
  }
  /// Writes the gradient of the bias from a warp's sums of dy; where slices share the group, in the CTA that
  /// is last.
  template <class Bias>
  __device__ __forceinline__ void store_bias(int group, const PieceGroup& of, const Bias& bias) const {
    const auto write = [&](int tile, int feature, float sum) {
      write_bias(table.tile(of.first + tile) * Ring::kTileFeatures + feature, sum, epilogue);
    };
    if (Config::slices == 1 || slices == 1) {
      bias.each(write);
      return;
    }
    const Sliced sliced(epilogue.workspace, table, group, slice);
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
      write(tile, feature, sum);
    });
  }
};

/// Config names what `sddmm` needs of linear layers of whole blocks, without block scales and derivatives;
/// width (pieces of a group), place_tiles (of a place of the ring), interleave (neighbouring inputs of a
/// thread, of 8 bytes) and operands (a ptx::WgmmaOperands). Maps are of x and dy of each pair in turn, in
/// boxes of a chunk's batch rows and 64 features.
template <class Config, class... Maps>
__device__ __forceinline__ void sddmm_grouped(const ActivationPairs& pairs,
                                              typename Config::Output::Element* dw, int n, long long,
                                              long long, long long, const SddmmEpilogue<Config>& epilogue,
                                              typename Config::Table table, const Maps&... maps) {
  const int most = most_slices<Config>(table);
  const int slice = static_cast<int>(blockIdx.x) % most;
  const int slices = slices_of<Config>(n, most);
  const BatchSlice rows = slice_of<Config>(n, slice, slices);
  const auto work = [&] {
    const int chunks = pairs.count * ((rows.count + Config::chunk - 1) / Config::chunk);
    return GroupedWork<Config>{pairs, slice, slices, rows, chunks, dw, epilogue, table};
  };
  sum_groups<Config, GroupedWork<Config>>(table, slice < slices, work, maps...);
}

}  // namespace sparsekiln
