#pragma once

#include "output.cuh"
#include "product.cuh"
#include "ptx_wgmma.cuh"
#include "spmm_warpgroups.cuh"
#include "tma_rings.cuh"
#include "wgmma_descriptors.cuh"
#include "wgmma_fragment.cuh"

// SpMM on the tensor cores of sm_90a, accumulated in float32, whose warpgroups have block rows of their own:
// yᵀ = W · xᵀ, so that 64 outputs are the rows of a product, and batch rows its columns.
//
// Those 64 outputs, a tile, are of one block row, or of two or four that are merged: smaller blocks are
// gathered into tiles of 64. An item has a tile for each of two or three warpgroups that multiply. These
// share lines of x, which the copy engine brings once for all of them, and take nothing else from one
// another: each has a ring of blocks of W, and goes through the chunks of its own tile. Another warpgroup
// produces.
//
//   ring of x          │ line │ line │ line │ line │          full, empty: of a line of tile_n batch rows
//   ring of W, each    │ W │ W │   │ W │ W │   │ W │ W │      full, empty: of the blocks of a tile in a
//   column
//
// A warpgroup waits for a block of W first, then for the line that it is multiplied with, and gives back both
// when its products are complete, before it waits again: it holds no line while it waits for W, which the
// producer may not bring before the line is free (tests/compiler/cuda/row_rings_test.cpp).

namespace sparsekiln {

/// What each place of a ring has, and who reads it.
template <class Config>
struct RowLayout {
  using Element = typename Config::Element;
  using Groups = WarpgroupsOf<Config::rows>;
  enum : int {
    kTileRows = 64,  ///< outputs
    kLineBytes = Config::line_bytes,
    kLine = kLineBytes / int{sizeof(Element)},  ///< features
    kColumns = kLine / Config::block_in,        ///< block columns of a line
    /// Bytes of a row of a block, along k, or by columns along the outputs.
    kPieceBytes = (Config::by_columns ? Config::block_out : Config::block_in) * int{sizeof(Element)},
    kBlockBytes = Config::block_out * Config::block_in * int{sizeof(Element)},
    kRings = Config::rows,
    kPlacesX = Config::stages,
    kPlacesW = Config::stages_w,
    kBytesX = Config::tile_n * kLineBytes,
    kBytesW = Config::merge * kBlockBytes,
    kReaders = 4,  ///< warps of a warpgroup
    kReadersX = kReaders * kRings,
    kReadersW = kReaders * Config::cluster,
    kCtasX = 1,
    kCtasW = Config::cluster,
  };
  static_assert(Config::merge * Config::block_out == int{kTileRows}, "rows of a product");
  static_assert((kPlacesW & kPlacesW - 1) == 0 && kPlacesW <= 16, "places that Filled counts");
};
/// The rings of a CTA. The word of a place of W is Chunk::bits.
template <class Config>
using RowRings = OperandRings<RowLayout<Config>>;

/// What a warpgroup has to know of a chunk.
struct Chunk {
  unsigned bits;

  /// `last`: no other chunk of the tile has this line.
  __device__ static __forceinline__ Chunk of(int place, unsigned parity, int column, bool last) {
    return {static_cast<unsigned>(place) | parity << 8 | 1u << 9 | static_cast<unsigned>(column) << 16 |
            (last ? 1u << 31 : 0)};
  }
  __device__ __forceinline__ int place() const { return static_cast<int>(bits & 0xff); }  ///< of x
  __device__ __forceinline__ unsigned parity() const { return bits >> 8 & 1; }
  /// How many chunks it is: one, which only the warp that writes it knows.
  __device__ __forceinline__ int count() const { return static_cast<int>(bits >> 9 & 1); }
  __device__ __forceinline__ int column() const {
    return static_cast<int>(bits >> 16 & 0xff);
  }  ///< of the line
  __device__ __forceinline__ bool last() const { return bits >> 31 != 0; }
};

/// What a producer knows of warpgroups, in one register: how often the places of W of each were filled,
/// modulo two rounds of the ring, in a byte; and in the last byte, which of them have blocks for the line
/// that was filled last.
template <int kPlaces>
struct Filled {
  unsigned bits = 0;

  __device__ __forceinline__ int place(int group) const { return of(group) % kPlaces; }
  __device__ __forceinline__ unsigned parity(int group) const {
    return static_cast<unsigned>(of(group) / kPlaces);
  }
  __device__ __forceinline__ void advance(int group) {
    const unsigned next = (of(group) + 1) % (2 * kPlaces);
    bits = (bits & ~(0xffu << 8 * group)) | next << 8 * group | 1u << kUsers + group;
  }
  __device__ __forceinline__ int users() const { return __popc(bits >> kUsers); }
  __device__ __forceinline__ void begin_line() { bits &= (1u << kUsers) - 1; }

 private:
  enum : int { kUsers = 24 };

  __device__ __forceinline__ int of(int group) const { return static_cast<int>(bits >> 8 * group & 0xff); }
};

/// The lane, read each time: kept, it and what follows from it would take registers that are not there, or be
/// computed between products.
__device__ __forceinline__ int lane_now() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

/// Fills the rings: a warp that reads the schedule ahead, and whose threads queue copies.
template <class Config>
class RowProducer {
 public:
  using Rings = RowRings<Config>;

  __device__ __forceinline__ RowProducer(const Rings& to, const typename Config::Table& tables)
      : rings(to), table(tables) {}

  /// The chunks of a worker for the batch tile whose first row is `first`.
  __device__ __forceinline__ void load(int worker, int first, const TensorMap& map_x,
                                       const TensorMap& map_w) {
    const int begin = table.worker(worker).chunk;
    const int end = table.worker(worker + 1).chunk;
    for (Steps steps(table, nullptr, ptx::kept(begin), end); !steps.done(); steps.advance()) {
      const Step step = steps.step(0);
      const int block = steps.block(0, lane_now() % Config::merge);
      if (!step.same_input()) {
        x.advance();
        if (ptx::is_elected()) {
          if (filled.users() != 0) release_unused();
          load_x(step, first, map_x);
        }
        filled.begin_line();
      }
      load_w(step, block, map_w);
      filled.advance(step.tile());
    }
  }

 private:
  using Steps = WorkerSteps<typename Config::Table, 1, Config::merge, Rings::kPlacesX, false>;

  /// Gives the line before back for those that have no blocks for it.
  __device__ __forceinline__ void release_unused() const {
    const int others = Config::rows - filled.users();
    const int before = x.place == 0 ? Rings::kPlacesX - 1 : x.place - 1;
    if (others > 0) ptx::arrive_as(rings.empty_x(before), others * Rings::kReaders);
  }
  __device__ __forceinline__ void load_x(const Step& step, int first, const TensorMap& map) const {
    rings.barriers.expect(x.place, x.parity, Rings::kBytesX);
    ptx::copy_box<1>(rings.x(x.place), map, step.column() / Rings::kColumns * Rings::kLine, first,
                     rings.full_x(x.place));
  }
  /// Each of the first lanes copies one of the blocks that are merged.
  __device__ __forceinline__ void load_w(const Step& step, int block, const TensorMap& map) const {
    enum : int {
      kRows = Config::by_columns ? Config::block_in : Config::block_out,  ///< of a block in memory
      kRowsOfShare = kRows / Rings::kCtasW,
    };
    const int group = step.tile();
    const int number = Rings::number_of(group, filled.place(group));
    const unsigned full = rings.full_w(number);
    if (lane_now() == 0) {
      ptx::wait_for_phase(rings.empty_w(number), filled.parity(group) ^ 1);
      Rings::word(number) =
          Chunk::of(x.place, x.parity, step.column() % Rings::kColumns, step.last_of_tile()).bits;
      ptx::arrive_and_expect(full, Rings::kBytesW);
    }
    __syncwarp();
    if (lane_now() >= Config::merge) return;
    // An absent block has number -1: its box is outside of the matrix, and becomes zeros.
    const ClusterPlace<Config> cta;  // here, since a member would take a register
    const int first_row = cta.tile() * kRowsOfShare;
    ptx::copy_box<Rings::kCtasW>(
        rings.w(number) + lane_now() * Rings::kBlockBytes + first_row * Rings::kPieceBytes, map, 0,
        block * kRows + first_row, full, cta.all_with_w());
  }

  const Rings& rings;
  const typename Config::Table& table;
  RingPlace<Rings::kPlacesX> x = RingPlace<Rings::kPlacesX>::before_first();  ///< that was filled last
  Filled<Rings::kPlacesW> filled;
};

/// The tile of a warpgroup: 64 outputs and all batch rows of the batch tile.
template <class Config>
struct RowTile {
  using Rings = RowRings<Config>;
  enum : int {
    kSums = Config::tile_n / 2,  ///< of a thread
    kColumns = Config::columns,  ///< of an instruction
    kParts = Config::tile_n / kColumns,
    kSumsOfPart = kSums / kParts,
    kRows = 1,
    kN = Config::tile_n / 4,
    kOut = 2,
    kRun = 2,
    kHolders = Rings::Groups::kThreads,
    kSteps = Config::block_in / (32 / int{sizeof(typename Config::Element)}),  ///< instructions of a chunk
    /// Along k of W; by columns 16 rows, the sides of a swizzled unit being along the outputs.
    kStepW = Config::by_columns ? 16 * Rings::kPieceBytes / 16 : 2,
  };

  const int lane = static_cast<int>(threadIdx.x % 32);
  float sums[kParts][kSumsOfPart];

  // A thread has two outputs, eight apart, of each pair of neighbouring batch rows (PTX ISA, "Register
  // Fragments and Shared Memory Matrix Layouts": D of m64nNk16). Once lanes have exchanged halves, it has two
  // neighbouring outputs, and the lanes of a batch row have 16.
  __device__ __forceinline__ int n_of(int j) const { return j / 2 * 8 + lane % 4 * 2 + j % 2; }
  __device__ __forceinline__ int out_of(int i) const {
    return static_cast<int>(threadIdx.x / 32 % 4) * 16 + lane / 4 % 2 * 8 + lane / 8 * 2 + i;
  }
  __device__ __forceinline__ float& at(int, int j, int i) { return sum(j / 2 * 4 + i * 2 + j % 2); }
  __device__ __forceinline__ float at(int, int j, int i) const {
    return const_cast<RowTile*>(this)->sum(j / 2 * 4 + i * 2 + j % 2);
  }

  __device__ __forceinline__ void clear() {
    clear_sums(sums);
    pin();
  }
  /// An optimization barrier: sums are cleared before the products that follow are begun, and read after
  /// them.
  __device__ __forceinline__ void pin() { ptx::pin(sums); }
  /// Distributes sums as `out_of` says: of two rows of W, a lane gets both of one half.
  __device__ __forceinline__ void gather() {
#pragma unroll
    for (int v = 0; v < kSums; v += 4) {
      exchange_with<4>(lane, sum(v), sum(v + 2));
      exchange_with<4>(lane, sum(v + 1), sum(v + 3));
    }
  }

  using OfX = StepDescriptors<Rings::kLineBytes, kSteps, 2>;
  using OfW = StepDescriptors<Rings::kPieceBytes, kSteps, kStepW>;

  /// Multiplies a chunk; the products are complete when it returns.
  __device__ __forceinline__ void multiply(const OfW (&w)[kParts], const OfX (&x)[kParts]) {
    ptx::begin_products();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        ptx::queue_product<Config::operands, 0, Config::by_columns>(sums[part], w[part].of[step],
                                                                    x[part].of[step], 1);
    ptx::commit_products();
    ptx::wait_products<0>();
  }

 private:
  __device__ __forceinline__ float& sum(int v) { return sums[v / kSumsOfPart][v % kSumsOfPart]; }
};

/// Where a warp that multiplies is in the rings.
template <class Config>
class RowReader {
 public:
  using Rings = RowRings<Config>;
  using Tile = RowTile<Config>;

  __device__ __forceinline__ explicit RowReader(const Rings& from)
      : rings(from),
        group(__shfl_sync(0xffffffff, Rings::Groups::own(), 0)),
        first_x(__shfl_sync(0xffffffff, from.x(0), 0)),
        first_w(from.w(0)) {}

  /// The work of a worker on one batch tile. One that does not exist is there for the other CTA of a cluster,
  /// and nothing is written.
  __device__ __forceinline__ void multiply_items(const typename Config::Table& table, int worker, bool exists,
                                                 const Destination<Config>& to) {
    const int end = table.worker(worker + 1).item;
#pragma unroll 1
    for (int item = table.worker(worker).item; item < end; ++item) {
      const int own = item * Config::rows + group;  // among the tiles of all items
      Tile tile;
      tile.clear();
#pragma unroll 1
      for (int left = table.item_end(own); left > 0;) left -= multiply(tile);
      tile.pin();
      if (!exists) continue;
      tile.gather();
      finish(table, own, ItemPlace<Config>(table, own), tile, to);
    }
  }

 private:
  enum : int { kColumnBytes = Config::block_in * int{sizeof(typename Config::Element)} };

  /// Waits for the next chunk, multiplies it and gives it back. Returns how many that were, one. NOTES: what
  /// follows from a place is computed before the waits, and the chunk is read again after the products: ptxas
  /// 13.0 would decide between them what is to be given back, and whether another chunk follows.
  __device__ __forceinline__ int multiply(Tile& tile) {
    const int number = Rings::number_of(group, w.place);
    const unsigned full_w = rings.full_w(number);
    const unsigned parity = w.parity;
    const unsigned read_w = computed_here(rings.empty_w(number));
    const unsigned read_in_other =
        Rings::kCtasW == 1 ? read_w : ptx::address_in_cta(read_w, cta.with_w(1 - cta.tile()));
    typename Tile::OfW of_w[Tile::kParts];  // a lane for each: ptxas would copy what it knows to be the same
#pragma unroll
    for (int part = 0; part < Tile::kParts; ++part)
      of_w[part].point_at(__shfl_sync(0xffffffff, first_w, part) + number * Rings::kBytesW,
                          Config::by_columns && Config::merge > 1 ? int{Rings::kBlockBytes} : 0);
    w.advance();
    w.place = static_cast<int>(computed_here(static_cast<unsigned>(w.place)));
    w.parity = computed_here(w.parity);
    ptx::wait_for_phase(full_w, parity);
    const Chunk chunk{__shfl_sync(0xffffffff, Rings::word(number), 0)};
    typename Tile::OfX of_x[Tile::kParts];
#pragma unroll
    for (int part = 0; part < Tile::kParts; ++part)
      of_x[part].point_at(first_x + chunk.place() * Rings::kBytesX + chunk.column() * kColumnBytes +
                          part * (Tile::kColumns * Rings::kLineBytes));
    ptx::wait_for_phase(rings.full_x(chunk.place()), chunk.parity());
    tile.multiply(of_w, of_x);
    const Chunk done{*const_cast<const volatile unsigned*>(&Rings::word(number))};
    __syncwarp();  // all lanes have read the chunk
    if (ptx::is_elected()) {
      ptx::arrive(read_w);
      if constexpr (Rings::kCtasW > 1) ptx::arrive_in_cluster(read_in_other);
      if (done.last()) ptx::arrive(rings.empty_x(done.place()));
    }
    return done.count();
  }

  const Rings& rings;
  const int group;
  const unsigned first_x;
  const unsigned first_w;
  const ClusterPlace<Config> cta;
  RingPlace<Rings::kPlacesW> w = RingPlace<Rings::kPlacesW>::first();  ///< that is read next
};

/// Config names block_in, rows (warpgroups that multiply), cluster (CTAs that share W, with neighbouring
/// batch tiles), stages (lines of x) and stages_w (blocks of W, or merged ones, of a warpgroup) of the rings,
/// line_bytes (of x along k), columns (batch rows of an instruction), operands (a ptx::WgmmaOperands), the
/// Element, and what `spmm` needs. Maps are of x in boxes of tile_n rows of a line, and of W in boxes of a
/// block, shared out to the CTAs that share it.
template <class Config>
__device__ __forceinline__ void spmm_wgmma_rows(
    const typename Config::Element*, const typename Config::Element* w, typename Config::Output::Element* y,
    void* workspace, int n, long long, long long y_stride, const EpilogueArguments<Config>& epilogue,
    typename Config::Table table, const TensorMap& map_x, const TensorMap& map_w) {
  spmm_in_warpgroups<Config, RowRings<Config>, RowProducer<Config>, RowReader<Config>>(
      w, y, workspace, n, y_stride, epilogue, table, map_x, map_w);
}

}  // namespace sparsekiln
