#pragma once

#include "lattice.cuh"
#include "product.cuh"
#include "ptx.cuh"
#include "schedule.cuh"

// Operand loading for CUDA cores: tiles of x and W are copied from global to shared memory, row by row along
// k, where each element is a word of 32 bits: a float, or of 8-bit integers an int. Constants are
// enumerators, because NVRTC would emit a variable for each static constexpr member.

namespace sparsekiln {

/// Rows of a tile in memory, one after the other.
template <class Element>
struct RowsInOrder {
  const Element* first;
  long long stride;
  int count;  ///< of those that exist

  /// A row, which is that of the thread's i-th quad; null: it does not exist.
  __device__ __forceinline__ const Element* row(int, int number) const { return first + number * stride; }
  __device__ __forceinline__ bool has(int, int number) const { return number < count; }
};

/// Rows of a tile of a convolution's x: points of its lattice, as a tap reads them.
template <class Config>
struct RowsOfPoints {
  using Points = Lattice<Config>;
  using Element = typename Config::Element;
  const Element* first;
  long long stride;
  const typename Points::Row* rows;  ///< those of the thread's quads
  typename Points::Tap tap;

  __device__ __forceinline__ const Element* row(int i, int) const {
    return first + (rows[i].position + tap.displacement) * stride;
  }
  __device__ __forceinline__ bool has(int i, int) const { return Points::reads(rows[i], tap); }
};

/// Copies kRows × kCols floats, whose rows are `stride` apart, to shared rows of kCols + 4 floats: an odd
/// number of 16-byte units, so that eight threads that read one column of quads in eight neighboring rows
/// meet no bank conflict. Elements of 8 bits become such words, through registers alone. kGuard says whether
/// rows or columns may be missing; these are not read and become zeros. Addresses are multiples of kAlignment
/// bytes.
enum Guard : int { kGuardNothing = 0, kGuardRows = 1, kGuardColumns = 2 };
template <int kRows, int kCols, int kThreads, int kGuard, int kAlignment, class Product>
struct TileCopy {
  using Element = typename Product::Element;
  enum : int {
    kPitch = kCols + 4,
    kFloats = kRows * kPitch,
    kQuads = kCols / 4,
    kCount = kRows * kQuads,
    kPerThread = (kCount + kThreads - 1) / kThreads,
  };

  /// Calls use(i, row, column) for each quad of this thread.
  template <class Use>
  __device__ static __forceinline__ void for_each(Use use) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int quad = static_cast<int>(threadIdx.x) + i * kThreads;
      if (kCount % kThreads != 0 && quad >= kCount) break;
      use(i, quad / kQuads, quad % kQuads * 4);
    }
  }
  /// How many floats of a quad exist, where so many columns do.
  template <class Rows>
  __device__ static __forceinline__ int readable(const Rows& rows, int columns, int i, int row, int column) {
    int floats = 4;
    if constexpr ((kGuard & kGuardColumns) != 0) floats = min(max(columns - column, 0), 4);
    if constexpr ((kGuard & kGuardRows) != 0) floats = rows.has(i, row) ? floats : 0;
    return floats;
  }

  /// Queues the copies. The caller calls ptx::commit_copies and wait_copies.
  template <class Rows>
  __device__ static __forceinline__ void async(float* shared, const Rows& rows, int columns) {
    for_each([&](int i, int row, int column) {
      const int floats = readable(rows, columns, i, row, column);
      const float* const from = floats > 0 ? rows.row(i, row) + column : rows.first;
      float* const to = shared + row * kPitch + column;
      if constexpr (kAlignment == 16) {
        ptx::copy_async(to, from, floats * 4);
      } else {
#pragma unroll
        for (int v = 0; v < 4; v += kAlignment / 4)
          ptx::copy_async_part<kAlignment>(to + v, from + v, min(max((floats - v) * 4, 0), kAlignment));
      }
    });
  }
  /// Reads this thread's quads into registers.
  template <class Rows>
  __device__ static __forceinline__ void fetch(float4 (&held)[kPerThread], const Rows& rows, int columns) {
    for_each([&](int i, int row, int column) {
      const int floats = readable(rows, columns, i, row, column);
      held[i] = make_float4(0, 0, 0, 0);
      const Element* const from = rows.row(i, row) + column;
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
  /// Changes this thread's floats in shared memory to change(value, its index).
  template <class Change>
  __device__ static __forceinline__ void amend(float* shared, Change change) {
    for_each([&](int, int row, int column) {
      const int place = row * kPitch + column;
      auto* const quad = reinterpret_cast<float4*>(shared + place);
      const float4 value = *quad;
      *quad = make_float4(change(value.x, place), change(value.y, place + 1), change(value.z, place + 2),
                          change(value.w, place + 3));
    });
  }
  /// Writes the quads from registers to shared memory.
  __device__ static __forceinline__ void put(float* shared, const float4 (&held)[kPerThread]) {
    for_each([&](int i, int row, int column) {
      *reinterpret_cast<float4*>(shared + row * kPitch + column) = held[i];
    });
  }
};

/// The stages of shared memory through which chunks of x (tile_n × chunk) and W (block_out × chunk) pass, and
/// the order in which they are filled. One stage is filled and used in turn; several stages are filled ahead,
/// by asynchronous copies (sm_80) or, two of them, through registers. Tiles of x are in buffers of their own,
/// as many as there are stages: a chunk that has the same input as the one before uses the tile that is
/// there.
///
/// For each chunk: acquire(), read x() and w(), release().
template <class Config>
struct OperandStages {
  using Table = typename Config::Table;
  using Element = typename Config::Element;
  enum : bool { kColumnsX = Config::feature_major };
  enum : bool { kColumns = Config::by_columns };
  enum : int {
    kPartialBlocks = Config::in_features != 0,
    kGuardX = kColumnsX ? kGuardColumns | (kPartialBlocks ? int{kGuardRows} : 0)
                        : kGuardRows | (kPartialBlocks ? int{kGuardColumns} : 0),
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
  enum : bool { kGates = Config::has_gates };
  /// What is known of the rows of a convolution's x that a thread copies quads of.
  struct Points {
    typename Lattice<Config>::Row rows[CopyX::kPerThread];
    __device__ __forceinline__ explicit Points(const Source<Config>& from) {
#pragma unroll
      for (int i = 0; i < CopyX::kPerThread; ++i) {
        const int row = (static_cast<int>(threadIdx.x) + i * Config::threads) / CopyX::kQuads;
        rows[i] = Lattice<Config>::row(from.first + row, row < from.valid, from.images);
      }
    }
  };
  struct NoPoints {
    __device__ __forceinline__ explicit NoPoints(const Source<Config>&) {}
  };
  using PointRows = typename Select<Config::convolves, Points, NoPoints>::Type;
  using ScheduleFeed = Feed<Table, 1, 1, 1, Config::stages, kGates>;
  enum : int {
    kBlocks = 1,
    /// length of a row of a block of W in memory
    kRowW = Config::by_columns ? Config::block_out : Config::block_in,
    kStride = 1,
    kAllX = Config::stages * int{CopyX::kFloats},
    kFirstW = kAllX * (Config::has_z ? 2 : 1),  ///< after the tiles of x and z
    kFloats = kFirstW + Config::stages * int{CopyW::kFloats},
  };
  enum : bool {
    kAsync = Config::stages > 1 && Config::async_copy,
    kRegisters = Config::stages > 1 && !Config::async_copy,
  };

  float* const shared;
  const Source<Config> from;
  ScheduleFeed feed;
  const PointRows points;
  int filling = 0;                     ///< the stage of W that the next chunk goes to
  int filling_x = Config::stages - 1;  ///< the buffer that the last tile of x went to
  int current = Config::stages - 1;
  int current_x = Config::stages - 1;
  bool holds = false;     ///< whether registers hold a chunk
  bool holds_x = false;   ///< whether they hold a tile of x
  RecentSteps under_way;  ///< of the chunks that are being copied, where an item has several tiles
  /// The gate of the block of the chunk that is read, and of the blocks of the chunks after it that are being
  /// copied.
  float gate[kGates ? Config::stages : 1];
  float4 held_x[kRegisters ? CopyX::kPerThread : 1];
  float4 held_z[kRegisters && Config::has_z ? CopyX::kPerThread : 1];
  float4 held_w[kRegisters ? CopyW::kPerThread : 1];

  __device__ __forceinline__ OperandStages(const Table& table, int worker, const Source<Config>& source)
      : shared(shared_memory()),
        from(source),
        feed(table, worker, 0, SingleBlock{}, source.gates),
        points(source) {
    if constexpr (kAsync) {
#pragma unroll
      for (int stage = 0; stage < Config::stages - 1; ++stage) queue();
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
    current = after(current);
    if (!same_input) current_x = after(current_x);
    if constexpr (kAsync) {
      ptx::wait_copies<Config::stages - 2>();
      amend(gate[kGates ? 1 : 0], same_input);
      __syncthreads();
      queue();
    } else if constexpr (kRegisters) {
      amend(gate[kGates ? 1 : 0], same_input);
      __syncthreads();
      fetch();
    } else {
      __syncthreads();
      fill();
      amend(gate[0], same_input);
      __syncthreads();
    }
  }
  /// Whether the chunk contributes nothing: then skip() is called instead of the multiplication.
  __device__ __forceinline__ bool skipped() const { return kGates && gate[0] == 0; }
  __device__ __forceinline__ void skip() {}
  __device__ __forceinline__ const float* x() const { return shared + current_x * CopyX::kFloats; }
  __device__ __forceinline__ const float* w() const { return shared + kFirstW + current * CopyW::kFloats; }
  __device__ __forceinline__ void release() {
    if constexpr (kRegisters) put();
  }

 private:
  struct SingleBlock {
    __device__ __forceinline__ int operator()(int) const { return 0; }
  };
  __device__ static __forceinline__ float* shared_memory() {
    __shared__ __align__(16) float memory[kFloats];
    return memory;
  }
  __device__ static __forceinline__ int after(int stage) {
    return stage + 1 == Config::stages ? 0 : stage + 1;
  }
  __device__ __forceinline__ float* to_x() const { return shared + filling_x * CopyX::kFloats; }
  __device__ __forceinline__ float* to_w() const { return shared + kFirstW + filling * CopyW::kFloats; }
  /// Notes what compute() needs to know of the feed's chunk. Returns whether its gate is not 0.
  __device__ __forceinline__ bool note() {
    if constexpr (Config::rows > 1 && Config::stages > 1) under_way.add(feed.step);
    return note_gate();
  }
  /// Whether a tile of x is to be copied for the feed's chunk. Selects the buffer that it goes to.
  __device__ __forceinline__ bool advance_x() {
    const bool brings = Config::rows == 1 || !feed.step.same_input();
    if (brings) filling_x = after(filling_x);
    // a gate of 0 makes the tile unnecessary, unless other chunks may use it
    return brings && (!kGates || Config::rows > 1 || feed.gate != 0);
  }
  /// Stores the gate of the feed's chunk. Returns whether it is not 0.
  __device__ __forceinline__ bool note_gate() {
    if constexpr (kGates) {
#pragma unroll
      for (int stage = 1; stage < Config::stages; ++stage) gate[stage - 1] = gate[stage];
      gate[Config::stages - 1] = feed.gate;
      return feed.gate != 0;
    } else {
      return true;
    }
  }
  /// Scales the weights and multiplies the inputs by the derivative, for the chunk that is read next. Each
  /// thread does that for what it has copied: after its copies are visible to itself, and before the barrier
  /// that makes them visible to all threads.
  __device__ __forceinline__ void amend(float factor, bool same_input) {
    if constexpr (kGates)
      if (factor != 0 && factor != 1)
        CopyW::amend(shared + kFirstW + current * CopyW::kFloats,
                     [=](float value, int) { return value * factor; });
    if constexpr (Config::has_z) {
      if (same_input || (kGates && Config::rows == 1 && factor == 0)) return;
      float* const tile = shared + current_x * CopyX::kFloats;
      CopyX::amend(tile, [=](float value, int place) {
        return value * Config::Derivative::derivative(tile[kAllX + place]);
      });
    }
  }
  /// The rows of the feed's chunk of x, or of z.
  __device__ __forceinline__ auto chunk_of(const Element* activation, long long stride) const {
    const int segment = feed.step.segment() * Config::chunk;
    if constexpr (Config::convolves) {
      const auto tap = Lattice<Config>::tap(feed.step.column(), from.images);
      const long long first = static_cast<long long>(tap.column) * Config::block_in + segment;
      return RowsOfPoints<Config>{activation + first, stride, points.rows, tap};
    } else {
      const long long first = static_cast<long long>(feed.step.column()) * Config::block_in + segment;
      return RowsInOrder<Element>{activation + first * (kColumnsX ? stride : 1), stride,
                                  kColumnsX ? depth() : from.valid};
    }
  }
  __device__ __forceinline__ auto x_chunk() const { return chunk_of(from.x, from.x_stride); }
  __device__ __forceinline__ auto z_chunk() const { return chunk_of(from.z, from.z_stride); }
  __device__ __forceinline__ RowsInOrder<Element> w_chunk() const {
    const Element* const weight = weight_of<Config>(feed.step.tile(), from.w, from.v);
    return {weight + static_cast<long long>(feed.block[0]) * (Config::block_out * Config::block_in) +
                feed.step.segment() * (kColumns ? Config::chunk * Config::block_out : Config::chunk),
            kRowW, depth()};
  }
  __device__ __forceinline__ bool live() const { return !feed.done(); }
  /// The number of k's of the feed's chunk that are features of x.
  __device__ __forceinline__ int depth() const {
    if constexpr (Config::in_features == 0) return Config::chunk;
    return features_left<Config>(feed.step.column()) - feed.step.segment() * Config::chunk;
  }
  __device__ __forceinline__ int columns_x() const { return kColumnsX ? from.valid : depth(); }
  __device__ __forceinline__ void queue() {
    const bool weighs = note();
    if (live()) {
      if (advance_x()) {
        CopyX::async(to_x(), x_chunk(), columns_x());
        if constexpr (Config::has_z) CopyX::async(to_x() + kAllX, z_chunk(), columns_x());
      }
      if (weighs) CopyW::async(to_w(), w_chunk(), depth());
    }
    feed.advance();
    ptx::commit_copies();
    filling = after(filling);
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
    if (holds_x) CopyX::put(to_x(), held_x);
    if constexpr (Config::has_z)
      if (holds_x) CopyX::put(to_x() + kAllX, held_z);
    if (holds) CopyW::put(to_w(), held_w);
    filling = after(filling);
  }
  __device__ __forceinline__ void fill() {
    const bool weighs = note();
    if (live()) {
      float4 quads_x[CopyX::kPerThread];
      float4 quads_w[CopyW::kPerThread];
      const bool brings_x = advance_x();
      if (brings_x) CopyX::fetch(quads_x, x_chunk(), columns_x());
      if (weighs) CopyW::fetch(quads_w, w_chunk(), depth());
      if (brings_x) CopyX::put(to_x(), quads_x);
      if constexpr (Config::has_z) {
        if (brings_x) CopyX::fetch(quads_x, z_chunk(), columns_x());
        if (brings_x) CopyX::put(to_x() + kAllX, quads_x);
      }
      if (weighs) CopyW::put(to_w(), quads_w);
    }
    feed.advance();
  }
};

}  // namespace sparsekiln
