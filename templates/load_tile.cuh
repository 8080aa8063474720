#pragma once

#include "lattice.cuh"
#include "product.cuh"
#include "ptx.cuh"
#include "ptx_mma.cuh"
#include "schedule.cuh"

// Operand loading for CUDA cores: tiles of x and W are copied from global to shared memory, row by row along
// k, where each element is a word of 32 bits: a float, or of 8-bit integers an int. Constants are
// enumerators, because NVRTC would emit a variable for each static constexpr member.

namespace sparsekiln {

/// Rows of a tile in memory, one after the other.
template <class Copy, class Element>
struct RowsInOrder {
  const Element* first;  ///< this thread's first quad
  long long stride;
  int count;  ///< rows from that quad's on that exist

  __device__ __forceinline__ const Element* quad(int i) const {
    return first + Copy::rows_below(i) * stride + Copy::columns_beside(i);
  }
  __device__ __forceinline__ bool has(int i) const { return Copy::rows_below(i) < count; }
};

/// Rows of a tile of a convolution's x: points of its lattice, as a tap reads them.
template <class Config, class Copy>
struct RowsOfPoints {
  using Points = Lattice<Config>;
  using Element = typename Config::Element;
  const Element* first;  ///< of position 0, at the column of this thread's first quad
  long long stride;
  const typename Points::Row* rows;  ///< those of the thread's quads
  typename Points::Tap tap;

  __device__ __forceinline__ const Element* quad(int i) const {
    const int position = has(i) ? rows[i].position + tap.displacement : 0;
    return first + position * stride + Copy::columns_beside(i);
  }
  __device__ __forceinline__ bool has(int i) const { return Points::reads(rows[i], tap); }
};

/// Copies kRows × kCols floats, whose rows are `stride` apart, to shared rows of kCols + 4 floats: an odd
/// number of 16-byte units, so that eight threads that read one column of quads in eight neighboring rows
/// meet no bank conflict. Elements of 8 bits become such words, through registers alone. kGuard says whether
/// rows or columns may be missing; these are not read and become zeros. Addresses are multiples of kAlignment
/// bytes.
///
/// `first` is the shared address of the thread's first quad. The addresses of its other quads differ by
/// constants where a thread's quads are in one column.
enum Guard : int { kGuardNothing = 0, kGuardRows = 1, kGuardColumns = 2 };
template <int kRows, int kCols, int kThreads, int kGuard, int kAlignment, class Product>
struct TileCopy {
  using Element = typename Product::Element;
  enum : int {
    kPitch = kCols + 4,  ///< floats
    kBytes = kRows * kPitch * 4,
    kQuads = kCols / 4,
    kCount = kRows * kQuads,
    kPerThread = (kCount + kThreads - 1) / kThreads,
  };
  enum : bool { kOneColumn = kThreads % kQuads == 0 };

  __device__ static __forceinline__ int row(int i) { return quad(i) / kQuads; }
  __device__ static __forceinline__ int column(int i) { return quad(i) % kQuads * 4; }
  /// Where this thread's i-th quad is, from its first one on.
  __device__ static __forceinline__ int rows_below(int i) {
    return kOneColumn ? i * (kThreads / kQuads) : row(i) - row(0);
  }
  __device__ static __forceinline__ int columns_beside(int i) {
    return kOneColumn ? 0 : column(i) - column(0);
  }
  /// Byte offset of this thread's first quad from the first row.
  __device__ static __forceinline__ unsigned place() {
    return static_cast<unsigned>(row(0) * kPitch + column(0)) * 4;
  }

  /// Queues the copies. The caller calls ptx::commit_copies and wait_copies.
  template <class Rows>
  __device__ static __forceinline__ void async(unsigned first, const Rows& rows, int columns) {
    for_each([&](int i) {
      const Element* const from = rows.quad(i);
      const unsigned to = first + distance(i);
      const int floats = readable(rows, columns, i);
      if constexpr (kAlignment == 16 && kGuard == kGuardNothing) {
        ptx::copy_async<0, 0>(to, from);
      } else if constexpr (kAlignment == 16) {
        ptx::copy_async<0, 0>(to, from, floats * 4);
      } else {
        enum : int { kPart = kAlignment / 4 };
#pragma unroll
        for (int v = 0; v < 4; v += kPart)
          ptx::copy_async_part<kAlignment, 0, 0>(to + v * 4, from + v,
                                                 min(max((floats - v) * 4, 0), kAlignment));
      }
    });
  }
  /// Reads this thread's quads into registers.
  template <class Rows>
  __device__ static __forceinline__ void fetch(float4 (&held)[kPerThread], const Rows& rows, int columns) {
    for_each([&](int i) {
      const int floats = readable(rows, columns, i);
      held[i] = make_float4(0, 0, 0, 0);
      const Element* const from = rows.quad(i);
      if constexpr (sizeof(Element) == 1)
        held[i] = widened(from, floats);
      else if (kAlignment == 16 && floats == 4) {
        held[i] = *reinterpret_cast<const float4*>(from);
      } else if (kAlignment < 16 || (kGuard & kGuardColumns) != 0) {
        if (floats > 0) held[i].x = from[0];
        if (floats > 1) held[i].y = from[1];
        if (floats > 2) held[i].z = from[2];
        if (kAlignment < 16 && floats > 3) held[i].w = from[3];
      }
    });
  }
  /// Writes the quads from registers to shared memory.
  __device__ static __forceinline__ void put(unsigned first, const float4 (&held)[kPerThread]) {
    for_each([&](int i) { ptx::store_shared(first + distance(i), held[i]); });
  }
  /// Changes this thread's floats in shared memory to change(value, the float kOther bytes further on).
  template <int kOther, class Change>
  __device__ static __forceinline__ void amend(unsigned first, Change change) {
    for_each([&](int i) {
      const unsigned place = first + distance(i);
      const float4 value = ptx::load_shared(place);
      float4 other = value;
      if constexpr (kOther != 0) other = ptx::load_shared(place + kOther);
      ptx::store_shared(place, make_float4(change(value.x, other.x), change(value.y, other.y),
                                           change(value.z, other.z), change(value.w, other.w)));
    });
  }

 private:
  __device__ static __forceinline__ int quad(int i) { return static_cast<int>(threadIdx.x) + i * kThreads; }
  /// Bytes of shared memory from the thread's first quad to its i-th.
  __device__ static __forceinline__ unsigned distance(int i) {
    return static_cast<unsigned>(rows_below(i) * kPitch + columns_beside(i)) * 4;
  }
  /// Calls use(i) for each quad of this thread.
  template <class Use>
  __device__ static __forceinline__ void for_each(Use use) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      if (kCount % kThreads != 0 && quad(i) >= kCount) break;
      use(i);
    }
  }
  /// How many floats of a quad exist, where so many columns do.
  template <class Rows>
  __device__ static __forceinline__ int readable(const Rows& rows, int columns, int i) {
    int floats = 4;
    if constexpr ((kGuard & kGuardColumns) != 0) floats = min(max(columns - column(i), 0), 4);
    if constexpr ((kGuard & kGuardRows) != 0) floats = rows.has(i) ? floats : 0;
    return floats;
  }
  /// A quad of the first `count` elements of 8 bits; the others are zeros.
  __device__ static __forceinline__ float4 widened(const Element* from, int count) {
    unsigned word = 0;
    if (kAlignment >= 4 && count == 4) {
      word = *reinterpret_cast<const unsigned*>(from);
    } else {
#pragma unroll
      for (int v = 0; v < 4; ++v)
        if (v < count) word |= static_cast<unsigned>(static_cast<unsigned char>(from[v])) << v * 8;
    }
    return make_float4(Product::widen(word & 0xff), Product::widen(word >> 8 & 0xff),
                       Product::widen(word >> 16 & 0xff), Product::widen(word >> 24));
  }
};

/// The stages of shared memory through which chunks of x (tile_n × chunk) and W (block_out × chunk) pass, and
/// the order in which they are filled. One stage is filled and used in turn; several stages are filled ahead,
/// by asynchronous copies (sm_80) or, two of them, through registers. The stage that was read last is filled
/// next. Where an item has several output tiles (kRing), tiles of x are in a ring of their own, with as many
/// places: a chunk that has the same input as the one before uses the tile that is there.
///
/// For each chunk: acquire(), read x() and w(), release().
template <class Config>
struct OperandStages {
  using Table = typename Config::Table;
  using Element = typename Config::Element;
  enum : bool { kColumnsX = Config::feature_major };
  enum : bool { kColumns = Config::by_columns };
  enum : bool { kBlockScales = Config::has_block_scales };
  enum : bool { kRing = Config::rows > 1 };
  enum : bool {
    kAsync = Config::stages > 1 && Config::async_copy,
    kRegisters = Config::stages > 1 && !Config::async_copy,
  };
  enum : int {
    kPartialBlocks = Config::in_features != 0,
    kGuardBatch = Config::full_tiles && !Config::convolves ? int{kGuardNothing}
                  : kColumnsX                              ? int{kGuardColumns}
                                                           : int{kGuardRows},
    kGuardX = kGuardBatch | (!kPartialBlocks ? int{kGuardNothing}
                             : kColumnsX     ? int{kGuardRows}
                                             : int{kGuardColumns}),
    kGuardW = !kPartialBlocks ? int{kGuardNothing}
              : kColumns      ? int{kGuardRows}
                              : int{kGuardColumns},
  };
  /// Its rows are batch rows, or k's if x is feature-major.
  using CopyX =
      TileCopy<kColumnsX ? Config::chunk : Config::tile_n, kColumnsX ? Config::tile_n : Config::chunk,
               Config::threads, kGuardX, Config::alignment, typename Config::Product>;
  /// Its rows are outputs, or k's if blocks are read by columns.
  using CopyW =
      TileCopy<kColumns ? Config::chunk : Config::block_out, kColumns ? Config::block_out : Config::chunk,
               Config::threads, kGuardW, 16, typename Config::Product>;
  /// The rows of a convolution's x that a thread copies quads of.
  struct Points {
    typename Lattice<Config>::Row rows[CopyX::kPerThread];
    __device__ __forceinline__ explicit Points(const Source<Config>& from) {
#pragma unroll
      for (int i = 0; i < CopyX::kPerThread; ++i) {
        const int row = CopyX::row(i);
        rows[i] = Lattice<Config>::row(from.first + row, row < from.valid, from.images);
      }
    }
  };
  struct NoPoints {
    __device__ __forceinline__ explicit NoPoints(const Source<Config>&) {}
  };
  using PointRows = typename Select<Config::convolves, Points, NoPoints>::Type;
  using ScheduleFeed = Feed<Table, 1, 1, 1, Config::stages, kBlockScales>;
  enum : int {
    kBlocks = 1,
    kStride = 1,
    kStepWeights = 1,
    /// length of a row of a block of W in memory
    kRowW = kColumns ? Config::block_out : Config::block_in,
    kBlockElements = Config::block_out * Config::block_in,
    /// elements of a block of W that a chunk takes
    kChunkW = kColumns ? Config::chunk * Config::block_out : Config::chunk,
  };
  // Shared memory, in bytes. A stage is addressed by its W.
  enum : int {
    kTileX = CopyX::kBytes * (Config::has_z ? 2 : 1),              ///< x, and z after it
    kNextW = kRing ? int{CopyW::kBytes} : kTileX + CopyW::kBytes,  ///< from one stage to the next
    kEnd = Config::stages * (kTileX + CopyW::kBytes),
    kX = kRing ? 0 : kTileX,  ///< from the tile of x to its place in the ring, or to the stage
    kZ = Config::has_z ? int{CopyX::kBytes} : 0,  ///< from the tile of x to that of z
  };

  const Source<Config> from;
  const Element* const first_x;  ///< this thread's first quad in the first column of blocks
  const Element* const first_z;
  const Element* const first_w;  ///< and in the first block
  const long long v_ahead;       ///< elements from one weight to the next
  ScheduleFeed feed;
  const PointRows points;
  const unsigned end;      ///< of the stages in shared memory
  const unsigned place_x;  ///< byte offset of this thread's first quad from the first row of x
  const unsigned place_w;
  unsigned reading;       ///< the stage that is read
  unsigned reading_x;     ///< the place in the ring that is read
  unsigned writing_x;     ///< that the last tile of x went to
  bool holds = false;     ///< whether registers hold a chunk
  bool holds_x = false;   ///< whether they hold a tile of x
  RecentSteps under_way;  ///< of the chunks that are being copied, where an item has several tiles
  /// The scale of the block of the chunk that is read, and of the blocks of the chunks after it that are
  /// being copied.
  float block_scale[kBlockScales ? Config::stages : 1];
  float4 held_x[kRegisters ? CopyX::kPerThread : 1];
  float4 held_z[kRegisters && Config::has_z ? CopyX::kPerThread : 1];
  float4 held_w[kRegisters ? CopyW::kPerThread : 1];

  __device__ __forceinline__ OperandStages(const Table& table, int worker, const Source<Config>& source)
      : from(source),
        first_x(first_of(source.x, source.x_stride)),
        first_z(Config::has_z ? first_of(source.z, source.z_stride) : nullptr),
        first_w(ptx::kept(source.w + CopyW::row(0) * kRowW + CopyW::column(0))),
        v_ahead(Config::weights > 1 ? source.v - source.w : 0),
        feed(table, worker, 0, SingleBlock{}, source.block_scales),
        points(source),
        end(ptx::kept(shared_memory() + kEnd)),
        place_x(ptx::kept(CopyX::place())),
        place_w(kSamePlaces ? place_x : ptx::kept(CopyW::place())),
        reading(end - CopyW::kBytes),
        reading_x(end_x() - kTileX),
        writing_x(reading_x) {
    if constexpr (kAsync) {
#pragma unroll
      for (int stage = 0; stage < Config::stages - 1; ++stage)
        queue(reading - (Config::stages - 1 - stage) * kNextW);
    } else if constexpr (kRegisters) {
      fetch();
      put();
    }
  }

  __device__ static __forceinline__ int first() { return 0; }
  /// Which tile the next chunk is of, and whether it has the x of the one before.
  __device__ __forceinline__ Step next() const {
    return Config::stages > 1 ? under_way.template read<Config::stages - 2>() : feed.step;
  }
  __device__ __forceinline__ void acquire(bool same_input) {
    const unsigned last = reading;
    reading = after(reading);
    if constexpr (kRing)
      if (!same_input) reading_x = after_x(reading_x);
    if constexpr (kAsync) {
      ptx::wait_copies<Config::stages - 2>();
      amend(block_scale[kBlockScales ? 1 : 0], same_input);
      __syncthreads();
      queue(last);
    } else if constexpr (kRegisters) {
      amend(block_scale[kBlockScales ? 1 : 0], same_input);
      __syncthreads();
      fetch();
    } else {
      __syncthreads();
      fill();
      amend(block_scale[0], same_input);
      __syncthreads();
    }
  }
  /// Whether the chunk contributes nothing: then skip() is called instead of the multiplication.
  __device__ __forceinline__ bool skipped() const { return kBlockScales && block_scale[0] == 0; }
  __device__ __forceinline__ void skip() {}
  /// Shared addresses of the chunk's operands.
  __device__ __forceinline__ unsigned x() const { return (kRing ? reading_x : reading) - kX; }
  __device__ __forceinline__ unsigned w() const { return reading; }
  __device__ __forceinline__ void release() {
    if constexpr (kRegisters) put();
  }

 private:
  struct SingleBlock {
    __device__ __forceinline__ int operator()(int) const { return 0; }
  };
  enum : bool { kSamePlaces = int{CopyX::kPitch} == int{CopyW::kPitch} };
  __device__ static __forceinline__ unsigned shared_memory() {
    __shared__ __align__(16) unsigned char memory[kEnd];
    return static_cast<unsigned>(__cvta_generic_to_shared(memory));
  }
  __device__ static __forceinline__ const Element* first_of(const Element* activation, long long stride) {
    const int row = Config::convolves ? 0 : CopyX::row(0);
    return ptx::kept(activation + row * stride + CopyX::column(0));
  }
  /// The stage after one.
  __device__ __forceinline__ unsigned after(unsigned stage) const {
    const unsigned next = stage + kNextW;
    return stage == end - CopyW::kBytes ? next - Config::stages * kNextW : next;
  }
  /// The place after one in the ring of x, which is before the stages.
  __device__ __forceinline__ unsigned after_x(unsigned place) const {
    const unsigned next = place + kTileX;
    return next == end_x() ? next - Config::stages * kTileX : next;
  }
  __device__ __forceinline__ unsigned end_x() const { return end - Config::stages * CopyW::kBytes; }
  /// Where this thread's first quads go, of the chunk that a stage is filled with.
  __device__ __forceinline__ unsigned to_x(unsigned stage) const {
    return (kRing ? writing_x : stage) - kX + place_x;
  }
  __device__ __forceinline__ unsigned to_w(unsigned stage) const { return stage + place_w; }
  /// Notes what compute() needs to know of the feed's chunk. Returns whether its block scale is not 0.
  __device__ __forceinline__ bool note() {
    if constexpr (kRing && Config::stages > 1) under_way.add(feed.step);
    return note_block_scale();
  }
  /// Whether a tile of x is to be copied for the feed's chunk. Selects the place in the ring that it goes to.
  __device__ __forceinline__ bool advance_x() {
    // a block scale of 0 makes the tile unnecessary, unless other chunks may use it
    if constexpr (!kRing) return !kBlockScales || feed.block_scale != 0;
    if (feed.step.same_input()) return false;
    writing_x = after_x(writing_x);
    return true;
  }
  /// Stores the scale of the feed's chunk. Returns whether it is not 0.
  __device__ __forceinline__ bool note_block_scale() {
    if constexpr (kBlockScales) {
#pragma unroll
      for (int stage = 1; stage < Config::stages; ++stage) block_scale[stage - 1] = block_scale[stage];
      block_scale[Config::stages - 1] = feed.block_scale;
      return feed.block_scale != 0;
    } else {
      return true;
    }
  }
  /// Scales the weights and multiplies the inputs by the derivative, for the chunk that is read next. Each
  /// thread does that for what it has copied: after its copies are visible to itself, and before the barrier
  /// that makes them visible to all threads.
  __device__ __forceinline__ void amend(float factor, bool same_input) {
    if constexpr (kBlockScales)
      if (factor != 0 && factor != 1)
        CopyW::template amend<0>(w() + place_w, [=](float value, float) { return value * factor; });
    if constexpr (Config::has_z) {
      if (same_input || (kBlockScales && !kRing && factor == 0)) return;
      CopyX::template amend<kZ>(
          x() + place_x, [](float value, float at) { return value * Config::Derivative::derivative(at); });
    }
  }
  /// Elements from the first of a block's columns, or k's, to the first of the feed's chunk.
  __device__ __forceinline__ int segment_of(int chunk) const {
    return Config::chunk < Config::block_in ? feed.step.segment() * chunk : 0;
  }
  /// This thread's quads of the feed's chunk of x, or of z.
  __device__ __forceinline__ auto chunk_of(const Element* first, long long stride) const {
    if constexpr (Config::convolves) {
      const auto tap = Lattice<Config>::tap(feed.step.column(), from.images);
      const long long ahead =
          static_cast<long long>(tap.column) * Config::block_in + segment_of(Config::chunk);
      return RowsOfPoints<Config, CopyX>{first + ahead, stride, points.rows, tap};
    } else {
      const long long ahead =
          static_cast<long long>(feed.step.column()) * Config::block_in + segment_of(Config::chunk);
      return RowsInOrder<CopyX, Element>{first + ahead * (kColumnsX ? stride : 1), stride,
                                         (kColumnsX ? depth() : from.valid) - CopyX::row(0)};
    }
  }
  __device__ __forceinline__ auto x_chunk() const { return chunk_of(first_x, from.x_stride); }
  __device__ __forceinline__ auto z_chunk() const { return chunk_of(first_z, from.z_stride); }
  __device__ __forceinline__ RowsInOrder<CopyW, Element> w_chunk() const {
    const Element* first = first_w + static_cast<long long>(feed.block[0]) * kBlockElements;
    if constexpr (Config::weights > 1) first += feed.step.tile() % Config::weights * v_ahead;
    return {first + segment_of(kChunkW), kRowW, depth() - CopyW::row(0)};
  }
  __device__ __forceinline__ bool live() const { return !feed.done(); }
  /// The number of k's of the feed's chunk that are features of x.
  __device__ __forceinline__ int depth() const {
    if constexpr (Config::in_features == 0) return Config::chunk;
    return features_left<Config>(feed.step.column()) - feed.step.segment() * Config::chunk;
  }
  __device__ __forceinline__ int columns_x() const { return kColumnsX ? from.valid : depth(); }
  __device__ __forceinline__ void queue(unsigned stage) {
    const bool weighs = note();
    if (live()) {
      if (advance_x()) {
        CopyX::async(to_x(stage), x_chunk(), columns_x());
        if constexpr (Config::has_z) CopyX::async(to_x(stage) + kZ, z_chunk(), columns_x());
      }
      if (weighs) CopyW::async(to_w(stage), w_chunk(), depth());
    }
    feed.advance();
    ptx::commit_copies();
  }
  __device__ __forceinline__ void fetch() {
    holds_x = live() && advance_x();
    holds = note() && live();
    if (holds_x) CopyX::fetch(held_x, x_chunk(), columns_x());
    if constexpr (Config::has_z)
      if (holds_x) CopyX::fetch(held_z, z_chunk(), columns_x());
    if (holds) CopyW::fetch(held_w, w_chunk(), depth());
    feed.advance();
  }
  __device__ __forceinline__ void put() {
    const unsigned stage = after(reading);
    if (holds_x) CopyX::put(to_x(stage), held_x);
    if constexpr (Config::has_z)
      if (holds_x) CopyX::put(to_x(stage) + kZ, held_z);
    if (holds) CopyW::put(to_w(stage), held_w);
  }
  __device__ __forceinline__ void fill() {
    const bool weighs = note();
    if (live()) {
      float4 quads_x[CopyX::kPerThread];
      float4 quads_w[CopyW::kPerThread];
      const bool brings_x = advance_x();
      if (brings_x) CopyX::fetch(quads_x, x_chunk(), columns_x());
      if (weighs) CopyW::fetch(quads_w, w_chunk(), depth());
      if (brings_x) CopyX::put(to_x(reading), quads_x);
      if constexpr (Config::has_z) {
        if (brings_x) CopyX::fetch(quads_x, z_chunk(), columns_x());
        if (brings_x) CopyX::put(to_x(reading) + kZ, quads_x);
      }
      if (weighs) CopyW::put(to_w(reading), quads_w);
    }
    feed.advance();
  }
};

}  // namespace sparsekiln
