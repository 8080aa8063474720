#pragma once

#include "load_columns.cuh"
#include "load_rows.cuh"
#include "load_unit.cuh"
#include "ptx.cuh"
#include "ptx_mma.cuh"
#include "schedule.cuh"
#include "swizzle.cuh"

// Operand loading for tensor cores: x and W to swizzled shared memory, rows that are contiguous along k, or
// of W rows for each k where it is read by columns.

namespace sparsekiln {

/// The stages of dynamic shared memory through which chunks of x (tile_n rows) and W (block_out · merge rows)
/// pass. A row of a chunk has chunk_units × 16 bytes: of one block, or of several blocks of the item. By
/// columns, W has a row of block_out for each k of the chunk (ColumnsOfW). Where an item has too few blocks
/// to fill its last chunk, both operands are filled with zeros, so that no Inf of x meets a zero of the fill;
/// where merging stacks a block that is absent, its rows of W are.
///
/// With one output tile an item, a stage has x and W. With several, tiles of x have a ring of their own, of
/// as many places: a chunk that has the same input as the one before is multiplied with the tile that is
/// there.
///
/// For each chunk: acquire(); read x() and w(), and call queue_ahead() in between; release().
template <class Config>
struct SwizzledStages {
  using Element = typename Config::Element;
  using Table = typename Config::Table;
  using Rows = Swizzle<Config::chunk_units>;
  using Order = RowOrder<Config::weight_a, Config::run>;
  enum : int {
    kUnits = Config::chunk_units,
    kElementBytes = sizeof(Element),
    kElements = 16 / kElementBytes,  ///< of a unit
    kBlockUnits = Config::block_in / kElements,
    kBlocks = kUnits > kBlockUnits ? kUnits / kBlockUnits : 1,
    kParts = kUnits < kBlockUnits ? kBlockUnits / kUnits : 1,
    kStride = 1,
    kOutputs = Config::block_out * Config::merge,
    kBlockElements = Config::block_out * Config::block_in,
    kCountX = Config::tile_n * kUnits,
    kCountW = kOutputs * kUnits,
    kPassesX = (kCountX + Config::threads - 1) / Config::threads,
    kPassesW = (kCountW + Config::threads - 1) / Config::threads,
    kPasses = kPassesX * (Config::has_z ? 2 : 1) + kPassesW,
    kPassRows = Config::threads / kUnits,
    kPassBytes = kPassRows * kUnits * 16,
    kBytesX = kCountX * 16,
    kTileX = kBytesX * (Config::has_z ? 2 : 1),  ///< with z's
    kBytesW = kCountW * 16,
    kWanted = Config::merge > 1 ? kPassesW : 1,  ///< blocks that a thread copies rows of
    kDepth = kUnits * kElements / kBlocks,       ///< k's of a chunk, of each of its blocks
    kWarpOut = kOutputs / Config::warps_out,     ///< outputs of a warp
    kWarpN = Config::tile_n / Config::warps_n,   ///< its batch entries
  };
  enum : bool {
    kAsync = Config::async_copy,  ///< else a chunk passes through registers
    kRegisters = Config::stages > 1 && !kAsync,
    kRing = Config::rows > 1,  ///< x has its own
    /// Everything of a chunk that is there is copied; else missing batch entries, and missing blocks of a
    /// chunk that has others, become zeros.
    kWhole = Config::full_tiles && kBlocks == 1 && Config::merge == 1 && Config::in_features == 0,
    kStepped = (kPassRows & (kPassRows - 1)) == 0,  ///< passes of W are constants apart
    kColumnsW = Config::by_columns,
    kColumnsX = Config::feature_major,
    /// Some units are there in part.
    kPartial = (kColumnsX && !Config::full_tiles) || Config::in_features != 0,
    kGlu = Config::has_gates,
    kSkips = kGlu && kBlocks == 1,  ///< a chunk whose gate is 0 is left out
  };
  enum : int {
    kFirstW = kRing ? Config::stages * kTileX : kTileX,
    kNextW = kRing ? kBytesW : kTileX + kBytesW,  ///< from one stage of W to the next
    kEndW = kFirstW + Config::stages * kNextW,
  };
  using Walk = Feed<Table, kBlocks, Config::merge, kWanted, kGlu>;
  struct NoColumns {
    template <class From>
    __device__ __forceinline__ NoColumns(const From&, int, int) {}
  };
  template <int kAll, int kOfWarp>
  using Places = ColumnSwizzle<kAll / kElements, kOfWarp / kElements, kElementBytes == 4>;
  using ColumnsX = ColumnsOfX<Config, kDepth, kBlocks, Places<Config::tile_n, kWarpN>>;
  using RowsX = RowsOfX<Config, kUnits>;
  using TileX = typename Select<kColumnsX, ColumnsX, RowsX>::Type;
  struct NoTile {};
  using TileZ = typename Select<Config::has_z, TileX, NoTile>::Type;
  using ColumnsW = typename Select<kColumnsW, ColumnsOfW<Config, kDepth, kBlocks, Places<kOutputs, kWarpOut>>,
                                   NoColumns>::Type;

  const int row;          ///< of shared memory, that this thread copies to in the first pass
  const unsigned place;   ///< its unit there, from the first row of x or W on, in bytes
  const unsigned shared;  ///< where the stages begin
  const char* w_row;
  const long long v_ahead;  ///< bytes from W to V, of a glu pair
  Walk feed;
  TileX tile_x;
  TileZ tile_z;
  ColumnsW columns_w;
  unsigned reading;    ///< the address of the W of the stage that is read
  unsigned reading_x;  ///< in the ring of x, if it has one
  unsigned next_x;     ///< where in it the next tile goes
  // The chunk that is being copied.
  unsigned writing_x = 0;  ///< where this thread's first unit of x goes
  unsigned writing_w = 0;  ///< likewise
  const char* from_w = nullptr;
  int bytes_w = 16;    ///< of this thread's units of rows of W, what x has features for
  bool live = false;   ///< there is something to copy
  bool has_x = false;  ///< a tile of x, too
  bool has_w = true;   ///< and blocks of W
  /// Of the chunk that is read and of those that are on their way behind it: the gates of the blocks that
  /// this thread copies.
  float gate[kGlu ? Config::stages : 1];
  uint4 held[kAsync ? 1 : kPasses];

  __device__ __forceinline__ SwizzledStages(const Table& table, int worker, const Source<Config>& from)
      : row(static_cast<int>(threadIdx.x / kUnits)),
        place(ptx::kept(static_cast<unsigned>(Rows::offset(row, unit())))),
        shared(ptx::kept(ptx::dynamic_shared())),
        w_row(kColumnsW ? nullptr
                        : ptx::kept(bytes(from.w + Order::output(row) % Config::block_out * Config::block_in +
                                          unit() % kBlockUnits * kElements))),
        v_ahead(Config::weights > 1 ? bytes(from.v) - bytes(from.w) : 0),
        feed(table, worker, unit() / kBlockUnits, Merged{row}, from.gates),
        tile_x(activation<TileX>(from.x, from.x_stride, from.valid)),
        tile_z(activation<TileZ>(from.z, from.z_stride, from.valid)),
        columns_w(from.w, unit() / kBlockUnits, sibling()),
        reading(shared + (kEndW - kNextW)),
        reading_x(shared + (Config::stages - 1) * kTileX),
        next_x(shared) {
    if constexpr (Config::stages > 1) {
#pragma unroll(Config::unrolled_workers > 0 ? Config::stages : 1)
      for (int stage = 0; stage < Config::stages - 1; ++stage) {
        begin(shared + kFirstW + stage * kNextW);
        copy_all();
        end();
      }
    }
  }

  __device__ static __forceinline__ int first() { return 0; }
  /// The stage that was read last is filled next. `same_input`: as the table says of the chunk.
  __device__ __forceinline__ void acquire(bool same_input) {
    if constexpr (kAsync && Config::stages > 1) ptx::wait_copies<Config::stages - 2>();
    if constexpr (Config::stages > 1) amend(gate[kGlu ? 1 : 0], after(reading), same_input);
    __syncthreads();
    if constexpr (kRing)
      if (!same_input) reading_x = after_x(reading_x);
    begin(reading);
    if constexpr (Config::stages > 1) {
      reading = after(reading);
      if constexpr (kRegisters) copy_all();
    } else {
      copy_all();
      end();
      if constexpr (kAsync) ptx::wait_copies<0>();
      amend(gate[0], reading, same_input);
      __syncthreads();
    }
  }
  /// Whether the chunk is to be left out: then it is skip() instead of the products.
  __device__ __forceinline__ bool skipped() const { return kSkips && gate[0] == 0; }
  __device__ __forceinline__ void skip() { queue_ahead(); }
  /// Addresses of x and W are these plus constants.
  enum : int {
    kX = kRing ? 0 : -kBytesX,
    kZ = kX + (kRing ? int{kBytesX} : -int{kBytesX}),  ///< behind x in its ring, else in front of it
  };
  __device__ __forceinline__ unsigned x() const { return kRing ? reading_x : reading; }
  __device__ __forceinline__ unsigned w() const { return reading; }
  /// Queues the copies of a later chunk: between the loads of the first fragments and their products, so that
  /// neither waits for them.
  __device__ __forceinline__ void queue_ahead() {
    if constexpr (kAsync && Config::stages > 1) copy_all();
  }
  __device__ __forceinline__ void release() {
    if constexpr (Config::stages > 1) end();
  }

 private:
  /// Which of a step's stacked blocks the rows of a thread's passes are of.
  struct Merged {
    int row;
    __device__ __forceinline__ int operator()(int pass) const {
      if constexpr (Config::merge == 1) return 0;
      const int output = Order::output(row) + Order::template below<kPassRows>(row, pass);
      return output < kOutputs ? output / Config::block_out : 0;
    }
  };
  __device__ static __forceinline__ const char* bytes(const Element* elements) {
    return reinterpret_cast<const char*>(elements);
  }
  template <class Tile>
  __device__ __forceinline__ Tile activation(const Element* first, long long stride, int valid) const {
    if constexpr (sizeof(Tile) == sizeof(NoTile))
      return {};
    else if constexpr (kColumnsX)
      return {first, stride, valid, unit() / kBlockUnits, sibling()};
    else
      return {first, stride, valid, place};
  }
  /// Which this is of the 8 neighbouring threads that copy from the same block of a chunk.
  __device__ static __forceinline__ int sibling() {
    enum : int {
      kOfBlock = kUnits < kBlockUnits ? int{kUnits} : int{kBlockUnits}
    };  // units of a chunk's row
    return static_cast<int>(threadIdx.x % 8 / kUnits) * kOfBlock + unit() % kBlockUnits;
  }
  __device__ static __forceinline__ int unit() { return static_cast<int>(threadIdx.x % kUnits); }
  /// The stage behind one, by the addresses of their W.
  __device__ __forceinline__ unsigned after(unsigned stage) const {
    const unsigned next = stage + kNextW;
    return next == shared + kEndW ? shared + kFirstW : next;
  }
  /// The place in the ring of x behind one of it.
  __device__ __forceinline__ unsigned after_x(unsigned place_of_x) const {
    const unsigned next = place_of_x + kTileX;
    return next == shared + Config::stages * kTileX ? shared : next;
  }

  /// Turns to the feed's chunk, which goes to the stage whose W is at `stage`.
  __device__ __forceinline__ void begin(unsigned stage) {
    live = !feed.done();
    has_x = !kRing || !feed.step.same_input();
    if constexpr (kGlu) {
#pragma unroll
      for (int stage = 1; stage < Config::stages; ++stage) gate[stage - 1] = gate[stage];
      gate[Config::stages - 1] = feed.gate;
    }
    if constexpr (kSkips) {
      has_w = feed.gate != 0;
      if constexpr (!kRing) has_x = has_w;  // else other chunks may want it
    }
    writing_x = kRing ? next_x : stage;
    if constexpr (kRing)
      if (live && has_x) next_x = after_x(next_x);
    writing_x += tile_x.place;
    tile_x.begin(feed.step.column(), feed.step.part(), present());
    if constexpr (Config::has_z) tile_z.begin(feed.step.column(), feed.step.part(), present());
    writing_w = stage + place_w();
    if constexpr (kColumnsW) {
      columns_w.begin(feed.block[0], feed.step.column(), feed.step.part());
    } else {
      from_w = w_row;
      if constexpr (Config::weights > 1) from_w += feed.step.tile() % 2 != 0 ? v_ahead : 0;
      if constexpr (Config::merge == 1)
        from_w += static_cast<long long>(feed.block[0]) * (kBlockElements * kElementBytes);
      if constexpr (kParts > 1) from_w += feed.step.part() * (kUnits * 16);
      bytes_w = RowsX::existing_bytes(feed.step.column(), feed.step.part());
    }
  }
  /// The block of the chunk that this thread copies is there.
  __device__ __forceinline__ bool present() const {
    return kBlocks == 1 || (kGlu ? feed.gate != 0 : feed.step.present());
  }
  /// Scales the weights and derives the inputs that this thread has copied for the chunk that is read next,
  /// whose W is at `stage`: behind what makes them visible to itself, and in front of the barrier that makes
  /// them so to others.
  __device__ __forceinline__ void amend(float factor, unsigned stage, bool same_input) {
    if constexpr (kGlu)
      if (factor != 0 && factor != 1) scale_passes<0>(factor, stage);
    if constexpr (Config::has_z) {
      const unsigned tile = !kRing ? stage : Config::stages > 1 ? after_x(reading_x) : reading_x;
      if (!(kRing && same_input) && !(kSkips && !kRing && factor == 0)) derive_passes<0>(tile + tile_x.place);
    }
  }
  template <int kPass>
  __device__ __forceinline__ void derive_passes(unsigned first) {
    using Derive = DeriveUnit<typename Config::Product, typename Config::Derivative, kZ - kX>;
    tile_x.template copy<kPass, kX>(Derive{}, first, true);
    if constexpr (kPass + 1 < kPassesX) derive_passes<kPass + 1>(first);
  }
  template <int kPass>
  __device__ __forceinline__ void scale_passes(float factor, unsigned stage) {
    copy_w<kPass>(ScaleUnit<typename Config::Product>{factor}, stage + place_w());
    if constexpr (kPass + 1 < kPassesW) scale_passes<kPass + 1>(factor, stage);
  }
  __device__ __forceinline__ unsigned place_w() const {
    if constexpr (kColumnsW)
      return columns_w.place;
    else
      return place;
  }
  /// Its copies, all that there are.
  __device__ __forceinline__ void copy_all() {
    if constexpr (kAsync)
      pass_through(Queues{});
    else
      pass_through(Fetches{held});
  }
  /// Makes them land in their stage, at once or later.
  __device__ __forceinline__ void end() {
    if constexpr (!kAsync) pass_through(Puts{held});
    feed.advance(Merged{row});
    if constexpr (kAsync) ptx::commit_copies();
  }

  // What is done with the units of a chunk, pass by pass: of<kPass>() is that of one.
  struct Queues {
    template <int kPass>
    __device__ __forceinline__ QueueUnits<kElementBytes, kWhole> of() const {
      return {};
    }
  };
  struct Fetches {
    uint4* const held;
    template <int kPass>
    __device__ __forceinline__ FetchUnit<kElementBytes, kPartial> of() const {
      return {held[kPass]};
    }
  };
  struct Puts {
    const uint4* const held;
    template <int kPass>
    __device__ __forceinline__ PutUnit of() const {
      return {held[kPass]};
    }
  };
  template <class Uses>
  __device__ __forceinline__ void pass_through(Uses uses) {
    if (!live) return;
    if (has_x) pass_through_x<0>(uses);
    if (!kSkips || has_w) pass_through_w<0>(uses);
  }
  template <int kPass, class Uses>
  __device__ __forceinline__ void pass_through_x(Uses uses) {
    tile_x.template copy<kPass, kX>(uses.template of<kPass>(), writing_x, present());
    if constexpr (Config::has_z)
      tile_z.template copy<kPass, kZ>(uses.template of<kPassesX + kPass>(), writing_x, present());
    if constexpr (kPass + 1 < kPassesX) pass_through_x<kPass + 1>(uses);
  }
  template <int kPass, class Uses>
  __device__ __forceinline__ void pass_through_w(Uses uses) {
    copy_w<kPass>(uses.template of<kPasses - kPassesW + kPass>(), writing_w);
    if constexpr (kPass + 1 < kPassesW) pass_through_w<kPass + 1>(uses);
  }
  /// Calls use.unit for this thread's unit of W of a pass, if it has one.
  template <int kPass, class Use>
  __device__ __forceinline__ void copy_w(Use use, unsigned first) {
    if constexpr (kColumnsW)
      columns_w.template copy<kPass>(use, first, present() ? 16 : 0);
    else
      copy_rows_w<kPass>(use, first);
  }
  template <int kPass, class Use>
  __device__ __forceinline__ void copy_rows_w(Use use, unsigned first_unit) {
    if (!in_tile<kCountW, kPass>()) return;
    enum : int { kTo = kPass * kPassBytes };
    const unsigned to = Rows::template turned<kPassRows, kPass>(first_unit);
    if constexpr (Config::merge == 1 && kStepped) {
      enum : int { kFrom = Order::output(kPass * kPassRows) * Config::block_in * kElementBytes };
      use.template unit<kTo, kFrom>(to, from_w, present() ? bytes_w : 0);
    } else {
      // The rows of one pass may be of another block than those of the first.
      const int first = Order::output(row);
      const int output = first + Order::template below<kPassRows>(row, kPass);
      const int block = Config::merge == 1 ? 0 : feed.block[kWanted > 1 ? kPass : 0];
      const int moved =
          Config::merge == 1 ? output - first : output % Config::block_out - first % Config::block_out;
      const bool readable = Config::merge == 1 ? present() : block >= 0;
      const long long elements =
          (readable ? static_cast<long long>(block) * kBlockElements : 0) + moved * Config::block_in;
      use.template unit<kTo, 0>(to, from_w + elements * kElementBytes, readable ? bytes_w : 0);
    }
  }
  template <int kCount, int kPass>
  __device__ static __forceinline__ bool in_tile() {
    return kCount % Config::threads == 0 || static_cast<int>(threadIdx.x) + kPass * Config::threads < kCount;
  }
};

}  // namespace sparsekiln
