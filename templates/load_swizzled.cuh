#pragma once

#include "load_columns.cuh"
#include "load_points.cuh"
#include "load_rows.cuh"
#include "load_unit.cuh"
#include "ptx.cuh"
#include "ptx_mma.cuh"
#include "schedule.cuh"
#include "swizzle.cuh"

// Operand loading for SpMM on tensor cores: chunks of x and W are copied from global to shared memory,
// several chunks ahead of the arithmetic, in the order that ldmatrix reads without bank conflicts.
//
// One chunk. A tile of x has tile_n rows, a tile of W has block_out · merge rows. A row has kUnits units of
// 16 bytes along k. Thread t copies unit t % kUnits of row t / kUnits, and in each further pass the same unit
// of the row kPassRows = threads / kUnits further down. For kUnits = 4, row.unit stand in shared memory as
// follows (swizzle.cuh): two rows fill a line of 128 bytes, and the position of a unit is combined with the
// number of its line by exclusive or. ldmatrix reads, for instance, 0.0 to 7.0, which are in eight different
// columns.
//
//             bank 0     4     8    12    16    20    24    28
//   line 0        0.0   0.1   0.2   0.3   1.0   1.1   1.2   1.3    written by threads 0 to 7
//   line 1        2.1   2.0   2.3   2.2   3.1   3.0   3.3   3.2    written by threads 8 to 15
//   line 2        4.2   4.3   4.0   4.1   5.2   5.3   5.0   5.1
//   line 3        6.3   6.2   6.1   6.0   7.3   7.2   7.1   7.0
//
// Operands that are not contiguous along k (x feature-major, W by columns) have a row for each k instead, and
// load_columns.cuh says which units a thread copies.
//
// All stages. With one output tile per item, a stage has everything of one chunk. With several output tiles
// (kRing), tiles of x are in a ring of their own with as many places: a chunk with the same input as the
// chunk before is multiplied with the tile that is there. z is there if x is multiplied by an activation's
// derivative.
//
//   one tile       | z x W | z x W | z x W |
//   several tiles  | x z | x z | x z | W | W | W |
//
// The time of one chunk, where copies are asynchronous and there are several stages:
//
//   acquire()      waits for the copies of this chunk; scales W, derives x and rounds both in place; barrier;
//                  selects the chunk that goes to the stage that was read last
//   x(), w()       give the addresses to read from
//   queue_ahead()  queues the copies of the selected chunk, while the first fragments are being read
//   release()      closes the group of copies and takes the next step of the schedule

namespace sparsekiln {

/// The stages of dynamic shared memory through which the chunks of a worker pass. A row of a chunk has
/// chunk_units × 16 bytes, from one block or from several blocks of the item. Where an item has too few
/// blocks to fill its last chunk, both operands are filled with zeros, so that no Inf of x is multiplied by a
/// zero of the fill; where merging stacks a block that is absent, its rows of W become zeros.
///
/// For each chunk: acquire(); read x() and w(), and call queue_ahead() in between; release().
template <class Config>
class SwizzledStages {
 public:
  using Element = typename Config::Element;
  using Table = typename Config::Table;
  using Rows = Swizzle<Config::chunk_units>;
  using Order = RowOrder<Config::weight_a, Config::interleave>;

  // What the config asks for.
  enum : bool {
    kAsync = Config::async_copy,                 ///< otherwise a chunk passes through registers
    kRegisters = Config::stages > 1 && !kAsync,  ///< … and is kept there while another is multiplied
    kRing = Config::rows > 1,                    ///< tiles of x have a ring of their own
    kColumnsW = Config::by_columns,              ///< W has a row for each k
    kColumnsX = Config::feature_major,           ///< x has a row for each k
    kBlockScales = Config::has_block_scales,     ///< blocks of W are scaled
    /// Whether floats are rounded to tf32 once, where they arrive: several warps read them. Else a warp
    /// rounds its fragments.
    kRounds = sizeof(Element) == 4 && Config::threads > 32,
  };
  /// What reads the stages.
  using Product = typename Select<kRounds, RoundedTf32Product, typename Config::Product>::Type;

  // A chunk, in units and in elements.
  enum : int {
    kUnits = Config::chunk_units,  ///< of a row
    kElementBytes = sizeof(Element),
    kElements = 16 / kElementBytes,  ///< of a unit
    kBlockUnits = Config::block_in / kElements,
    kBlocks = kUnits > kBlockUnits ? kUnits / kBlockUnits : 1,    ///< of a chunk
    kSegments = kUnits < kBlockUnits ? kBlockUnits / kUnits : 1,  ///< of a block, each of them a chunk
    kStride = 1,       ///< from one chunk of the worker to the next
    kStepWeights = 1,  ///< weights that a step is of
    kOutputs = Config::block_out * Config::merge,
    kBlockElements = Config::block_out * Config::block_in,
    kDepth = kUnits * kElements / kBlocks,      ///< k's of a chunk from each of its blocks
    kWarpOut = kOutputs / Config::warps_out,    ///< outputs of a warp
    kWarpN = Config::tile_n / Config::warps_n,  ///< batch rows of a warp
  };

  // How the threads share the copies of a chunk.
  enum : int {
    kCountX = Config::tile_n * kUnits,  ///< units
    kCountW = kOutputs * kUnits,
    kPassesX = (kCountX + Config::threads - 1) / Config::threads,
    kPassesW = (kCountW + Config::threads - 1) / Config::threads,
    kPasses = kPassesX * (Config::has_z ? 2 : 1) + kPassesW,
    kPassRows = Config::threads / kUnits,
    kPassBytes = kPassRows * kUnits * 16,
    kWanted = Config::merge > 1 ? kPassesW : 1,  ///< blocks whose rows a thread copies
  };
  enum : bool {
    /// Whether all units of every chunk are copied. Otherwise missing batch rows, and missing blocks of a
    /// chunk that has others, become zeros.
    kWhole = Config::full_tiles && kBlocks == 1 && Config::merge == 1 && Config::in_features == 0,
    /// Whether units may exist in part.
    kPartial = (kColumnsX && !Config::full_tiles) || Config::in_features != 0,
    kStepped = (kPassRows & (kPassRows - 1)) == 0,  ///< addresses of the passes of W differ by constants
    kSkips = kBlockScales && kBlocks == 1,          ///< a chunk whose scale is 0 is left out
  };

  // Shared memory, in bytes.
  enum : int {
    kBytesX = kCountX * 16,
    kTileX = kBytesX * (Config::has_z ? 2 : 1),  ///< x and z
    kBytesW = kCountW * 16,
    kFirstW = kRing ? Config::stages * kTileX : kTileX,
    kNextW = kRing ? kBytesW : kTileX + kBytesW,  ///< from W of one stage to W of the next
    kEndW = kFirstW + Config::stages * kNextW,
    kX = kRing ? 0 : -kBytesX,                         ///< from x() to the tile of x
    kZ = kX + (kRing ? int{kBytesX} : -int{kBytesX}),  ///< from x() to the tile of z
  };

  __device__ __forceinline__ SwizzledStages(const Table& table, int worker, const Source<Config>& from)
      : row(static_cast<int>(threadIdx.x / kUnits)),
        place(ptx::kept(static_cast<unsigned>(Rows::offset(row, unit())))),
        shared(ptx::kept(ptx::dynamic_shared())),
        w_row(kColumnsW ? nullptr
                        : ptx::kept(bytes(from.w + Order::output(row) % Config::block_out * Config::block_in +
                                          unit() % kBlockUnits * kElements))),
        v_ahead(Config::weights > 1 ? bytes(from.v) - bytes(from.w) : 0),
        feed(table, worker, unit() / kBlockUnits, Merged{row}, from.block_scales),
        tile_x(activation<TileX>(from.x, from.x_stride, from)),
        tile_z(activation<TileZ>(from.z, from.z_stride, from)),
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
  /// Which tile the next chunk is of, and whether it has the x of the one before.
  __device__ __forceinline__ Step next() const {
    return Config::stages > 1 ? under_way.template read<Config::stages - 2>() : feed.step;
  }
  /// Makes the next chunk readable. The stage that was read last is filled next. `same_input`: what next()
  /// said about the chunk.
  __device__ __forceinline__ void acquire(bool same_input) {
    if constexpr (kAsync && Config::stages > 1) ptx::wait_copies<Config::stages - 2>();
    if constexpr (Config::stages > 1) amend(block_scale[kBlockScales ? 1 : 0], after(reading), same_input);
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
      amend(block_scale[0], reading, same_input);
      __syncthreads();
    }
  }
  /// Whether the chunk contributes nothing: then skip() is called instead of the multiplication.
  __device__ __forceinline__ bool skipped() const { return kSkips && block_scale[0] == 0; }
  __device__ __forceinline__ void skip() { queue_ahead(); }
  /// The chunk's operands: x is kX bytes from x(), W at w().
  __device__ __forceinline__ unsigned x() const { return kRing ? reading_x : reading; }
  __device__ __forceinline__ unsigned w() const { return reading; }
  /// Queues the copies of a later chunk. To be called between the loads of the first fragments and their
  /// products, so that neither waits for the copies.
  __device__ __forceinline__ void queue_ahead() {
    if constexpr (kAsync && Config::stages > 1) copy_all();
  }
  __device__ __forceinline__ void release() {
    if constexpr (Config::stages > 1) end();
  }

 private:
  // ---- the types of the operands' copies ----

  using ScheduleFeed = Feed<Table, kBlocks, Config::merge, kWanted, Config::stages, kBlockScales>;
  struct NoColumns {
    template <class From>
    __device__ __forceinline__ NoColumns(const From&, int, int) {}
  };
  template <int kAll, int kOfWarp>
  using Places = ColumnSwizzle<kAll / kElements, kOfWarp / kElements, kElementBytes == 4>;
  using ColumnsX = ColumnsOfX<Config, kDepth, kBlocks, Places<Config::tile_n, kWarpN>>;
  using RowsX = RowsOfX<Config, kUnits>;
  using PointsX = PointsOfX<Config, kUnits>;
  using TileX =
      typename Select<kColumnsX, ColumnsX, typename Select<Config::convolves, PointsX, RowsX>::Type>::Type;
  struct NoTile {};
  using TileZ = typename Select<Config::has_z, TileX, NoTile>::Type;
  using ColumnsW = typename Select<kColumnsW, ColumnsOfW<Config, kDepth, kBlocks, Places<kOutputs, kWarpOut>>,
                                   NoColumns>::Type;

  // ---- which units this thread copies ----

  /// Which of a step's stacked blocks the rows of a thread's passes belong to.
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
  __device__ __forceinline__ Tile activation(const Element* first, long long stride,
                                             const Source<Config>& from) const {
    if constexpr (sizeof(Tile) == sizeof(NoTile))
      return {};
    else if constexpr (kColumnsX)
      return {first, stride, from.valid, unit() / kBlockUnits, sibling()};
    else if constexpr (Config::convolves)
      return {first, stride, from, place};
    else
      return {first, stride, from.valid, place};
  }
  /// Which this thread is of the 8 neighboring threads that copy from the same block of a chunk.
  __device__ static __forceinline__ int sibling() {
    enum : int {
      kOfBlock = kUnits < kBlockUnits ? int{kUnits} : int{kBlockUnits}
    };  // units of a chunk's row
    return static_cast<int>(threadIdx.x % 8 / kUnits) * kOfBlock + unit() % kBlockUnits;
  }
  __device__ static __forceinline__ int unit() { return static_cast<int>(threadIdx.x % kUnits); }
  __device__ __forceinline__ unsigned place_w() const {
    if constexpr (kColumnsW)
      return columns_w.place;
    else
      return place;
  }
  /// Whether the block of the chunk that this thread copies exists.
  __device__ __forceinline__ bool present() const {
    return kBlocks == 1 || (kBlockScales ? feed.block_scale != 0 : feed.step.present());
  }

  // ---- the order of the stages ----

  /// The stage after one, both by the address of their W.
  __device__ __forceinline__ unsigned after(unsigned stage) const {
    const unsigned next = stage + kNextW;
    return next == shared + kEndW ? shared + kFirstW : next;
  }
  /// The place after one in the ring of x.
  __device__ __forceinline__ unsigned after_x(unsigned place_of_x) const {
    const unsigned next = place_of_x + kTileX;
    return next == shared + Config::stages * kTileX ? shared : next;
  }

  // ---- copying a chunk ----

  /// Selects the feed's chunk for the stage whose W is at `stage`.
  __device__ __forceinline__ void begin(unsigned stage) {
    live = !feed.done();
    has_x = !kRing || !feed.step.same_input();
    if constexpr (kRing && Config::stages > 1) under_way.add(feed.step);
    if constexpr (kBlockScales) {
#pragma unroll
      for (int stage = 1; stage < Config::stages; ++stage) block_scale[stage - 1] = block_scale[stage];
      block_scale[Config::stages - 1] = feed.block_scale;
    }
    if constexpr (kSkips) {
      has_w = feed.block_scale != 0;
      if constexpr (!kRing) has_x = has_w;  // in a ring, other chunks may use it
    }
    writing_x = kRing ? next_x : stage;
    if constexpr (kRing)
      if (live && has_x) next_x = after_x(next_x);
    writing_x += tile_x.place;
    tile_x.begin(feed.step.column(), feed.step.segment(), present());
    if constexpr (Config::has_z) tile_z.begin(feed.step.column(), feed.step.segment(), present());
    writing_w = stage + place_w();
    const long long ahead = Config::weights > 1 ? feed.step.tile() % Config::weights * v_ahead : 0;
    if constexpr (kColumnsW) {
      columns_w.begin(feed.block[0], feed.step.column(), feed.step.segment(), ahead);
    } else {
      from_w = w_row + ahead;
      if constexpr (Config::merge == 1)
        from_w += static_cast<long long>(feed.block[0]) * (kBlockElements * kElementBytes);
      if constexpr (kSegments > 1) from_w += feed.step.segment() * (kUnits * 16);
      bytes_w = RowsX::existing_bytes(feed.step.column(), feed.step.segment());
    }
  }
  /// Copies all units of the selected chunk, or reads them into registers.
  __device__ __forceinline__ void copy_all() {
    if constexpr (kAsync)
      pass_through(Queues{});
    else
      pass_through(Fetches{held});
  }
  /// Completes these copies, at once or later, and advances to the next chunk.
  __device__ __forceinline__ void end() {
    if constexpr (!kAsync) pass_through(Puts{held});
    feed.advance();
    if constexpr (kAsync) ptx::commit_copies();
  }

  // Operations on the units of a chunk: of<kPass>() is the operation for one pass.
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
  /// Calls use.unit for this thread's unit of W in a pass, if it has one.
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
    const unsigned to = Rows::template flipped<kPassRows, kPass>(first_unit);
    if constexpr (Config::merge == 1 && kStepped) {
      enum : int { kFrom = Order::output(kPass * kPassRows) * Config::block_in * kElementBytes };
      use.template unit<kTo, kFrom>(to, from_w, present() ? bytes_w : 0);
    } else {
      // The rows of this pass may belong to another block than those of the first pass.
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

  // ---- changing a chunk in shared memory ----

  /// Scales the weights, multiplies the inputs by the derivative and rounds both, for the chunk that is read
  /// next, whose W is at `stage`. Each thread does that for what it has copied: after its copies are visible
  /// to itself, and before the barrier that makes them visible to all threads.
  __device__ __forceinline__ void amend(float factor, unsigned stage, bool same_input) {
    if constexpr (kBlockScales)
      if (factor != 0 && factor != 1) scale_passes<0>(factor, stage);
    if constexpr (kRounds)
      if (!kSkips || factor != 0) round_passes_w<0>(stage);
    if constexpr (Config::has_z || kRounds) {
      const unsigned tile = !kRing ? stage : Config::stages > 1 ? after_x(reading_x) : reading_x;
      if ((kRing && same_input) || (kSkips && !kRing && factor == 0)) return;
      if constexpr (Config::has_z) derive_passes<0>(tile + tile_x.place);
      if constexpr (kRounds) round_passes_x<0>(tile + tile_x.place);
    }
  }
  template <int kPass>
  __device__ __forceinline__ void round_passes_x(unsigned first) {
    tile_x.template copy<kPass, kX>(RoundUnit<typename Config::Product>{}, first, true);
    if constexpr (kPass + 1 < kPassesX) round_passes_x<kPass + 1>(first);
  }
  template <int kPass>
  __device__ __forceinline__ void round_passes_w(unsigned stage) {
    copy_w<kPass>(RoundUnit<typename Config::Product>{}, stage + place_w());
    if constexpr (kPass + 1 < kPassesW) round_passes_w<kPass + 1>(stage);
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

  // ---- this thread's first units ----

  const int row;          ///< the row of shared memory that it writes in the first pass
  const unsigned place;   ///< byte offset of its unit from the first row of x or W
  const unsigned shared;  ///< address of the stages
  const char* w_row;
  const long long v_ahead;  ///< bytes from one weight to the next

  // ---- where chunks come from ----

  ScheduleFeed feed;
  TileX tile_x;
  TileZ tile_z;
  ColumnsW columns_w;

  // ---- the chunk that is read ----

  unsigned reading;    ///< address of its W
  unsigned reading_x;  ///< address of its x in the ring, if there is one
  unsigned next_x;     ///< where in the ring the next tile goes

  // ---- the chunk that is being copied ----

  unsigned writing_x = 0;  ///< where this thread's first unit of x goes
  unsigned writing_w = 0;  ///< where this thread's first unit of W goes
  const char* from_w = nullptr;
  int bytes_w = 16;    ///< bytes of this thread's units of rows of W for which x has features
  bool live = false;   ///< whether there is anything to copy
  bool has_x = false;  ///< whether that includes a tile of x
  bool has_w = true;   ///< whether that includes blocks of W

  // ---- what goes with several chunks ----

  RecentSteps under_way;  ///< of the chunks that are being copied, where tiles of x have a ring
  /// The scales of the blocks that this thread copies: of the chunk that is read, and of the chunks after it
  /// that are being copied.
  float block_scale[kBlockScales ? Config::stages : 1];
  uint4 held[kAsync ? 1 : kPasses];
};

}  // namespace sparsekiln
