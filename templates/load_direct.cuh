#pragma once

#include "load_warp.cuh"
#include "panels.cuh"
#include "product.cuh"

// Operand loading for small batches without shared memory: each lane loads its own fragments of both operands
// into registers, and no warp waits for another one.

namespace sparsekiln {
namespace ptx {

/// Loads 4, 8 or 16 bytes of what no kernel writes meanwhile and is not read again, where `wanted` (PTX ISA,
/// "Data Movement: ld.global.nc"). It is predicated: after a branch ptxas awaits all loads in flight
/// together.
template <long long kBytes>
__device__ __forceinline__ void load_once(unsigned (&words)[1], const char* global, bool wanted) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %3, 0;\n\t"
      "@p ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1+%2];\n\t}"
      : "+r"(words[0])
      : "l"(global), "n"(kBytes), "r"(static_cast<int>(wanted)));
}
template <long long kBytes>
__device__ __forceinline__ void load_once(unsigned (&words)[2], const char* global, bool wanted) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %4, 0;\n\t"
      "@p ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2+%3];\n\t}"
      : "+r"(words[0]), "+r"(words[1])
      : "l"(global), "n"(kBytes), "r"(static_cast<int>(wanted)));
}
template <long long kBytes>
__device__ __forceinline__ void load_once(unsigned (&words)[4], const char* global, bool wanted) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %6, 0;\n\t"
      "@p ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4+%5];\n\t}"
      : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
      : "l"(global), "n"(kBytes), "r"(static_cast<int>(wanted)));
}
/// Loads as many bytes that an earlier launch may have written, and that other warps read as well, where
/// `wanted`.
template <long long kBytes>
__device__ __forceinline__ void load_cached(unsigned (&words)[1], const char* global, bool wanted) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %3, 0;\n\t"
      "@p ld.global.u32 %0, [%1+%2];\n\t}"
      : "+r"(words[0])
      : "l"(global), "n"(kBytes), "r"(static_cast<int>(wanted))
      : "memory");
}
template <long long kBytes>
__device__ __forceinline__ void load_cached(unsigned (&words)[2], const char* global, bool wanted) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %4, 0;\n\t"
      "@p ld.global.v2.u32 {%0, %1}, [%2+%3];\n\t}"
      : "+r"(words[0]), "+r"(words[1])
      : "l"(global), "n"(kBytes), "r"(static_cast<int>(wanted))
      : "memory");
}
template <long long kBytes>
__device__ __forceinline__ void load_cached(unsigned (&words)[4], const char* global, bool wanted) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %6, 0;\n\t"
      "@p ld.global.v4.u32 {%0, %1, %2, %3}, [%4+%5];\n\t}"
      : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
      : "l"(global), "n"(kBytes), "r"(static_cast<int>(wanted))
      : "memory");
}

}  // namespace ptx

/// What a lane has of a chunk of W by columns, whose rows in memory are k's. The 16 bytes of a row of x that
/// it has are k's in a row (kBlockWords words of each block), and these are what it needs of W, for one
/// output of each eight.
///
/// Elements of 16 bits: a load brings a quarter of each of eight rows, those of which a transposition of 8 ×
/// 8 elements (movmatrix) makes what lanes need: pairs of rows, as far apart as those of x are for one lane
/// and the next. Elements of 32 bits: a lane loads its own k's, and an eighth of the row. So the outputs of
/// kTiles tiles of eight alternate: output r of tile t is output kPerWord · (r / kPerWord · kTiles + t) + r %
/// kPerWord of them all.
template <class Config>
struct DirectColumns {
  using Element = typename Config::Element;
  enum : int {
    kElementBytes = sizeof(Element),
    kPerWord = 4 / kElementBytes,
    kRowBytes = Config::block_out * kElementBytes,
    kBlockWords = Config::block_in * kElementBytes < 64 ? Config::block_in * kElementBytes / 16 : 4,
    kBlocks = 4 / kBlockWords,
    kUnits = Config::warp_out / 8,
    kTiles = kUnits < 4 ? kUnits : 4,  ///< words of a lane's load
    kPieces = kUnits / kTiles,         ///< loads of a row
    kPieceBytes = 8 * kTiles * kElementBytes,
  };
  unsigned loads[kBlocks * kBlockWords][kPieces][kTiles];

  __device__ __forceinline__ unsigned word(int unit, int i) const {
    return loads[i][unit / kTiles][unit % kTiles];
  }
  __device__ __forceinline__ unsigned& word(int unit, int i) {
    return loads[i][unit / kTiles][unit % kTiles];
  }
  /// Bytes from a block's first element on, or a segment's, to the first that this lane loads.
  __device__ static __forceinline__ int place() {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int column = kPerWord == 2 ? lane % 4 : lane / 4;
    return first_row() * kRowBytes + column * (kTiles * 4);
  }
  /// Begins to load a block, of which x has features for the first `left` bytes.
  template <int kBlock, int kWord = 0>
  __device__ __forceinline__ void load(const char* from, bool present, int left) {
    const bool exists =
        present && (Config::in_features == 0 || (first_row() + kWord * kPerWord) * kElementBytes < left);
    load_row<kBlock * kBlockWords + kWord, static_cast<long long>(kWord) * kPerWord * kRowBytes, 0>(from,
                                                                                                    exists);
    if constexpr (kWord + 1 < kBlockWords) load<kBlock, kWord + 1>(from, present, left);
  }
  __device__ __forceinline__ void transpose() {
    if constexpr (kPerWord == 2) {
#pragma unroll
      for (int v = 0; v < 4 * kUnits; ++v) word(v / 4, v % 4) = ptx::transposed(word(v / 4, v % 4));
    }
  }

 private:
  /// The first row of a block that this lane loads.
  __device__ static __forceinline__ int first_row() {
    const int lane = static_cast<int>(threadIdx.x % 32);
    return kPerWord == 2 ? 2 * kBlockWords * (lane / 8) + lane / 4 % 2 : kBlockWords * (lane % 4);
  }
  template <int kWord, long long kFrom, int kPiece>
  __device__ __forceinline__ void load_row(const char* from, bool exists) {
    ptx::load_once<kFrom + kPiece * kPieceBytes>(loads[kWord][kPiece], from, exists);
    if constexpr (kPiece + 1 < kPieces) load_row<kWord, kFrom, kPiece + 1>(from, exists);
  }
};

/// The chunks of one warp, as WarpShare has them, of which Config::stages are under way, each in registers of
/// its own. A chunk is 64 bytes of k, as WarpStages has it: a segment of a block, a block, or
/// kBlocks blocks of the item.
///
/// A load brings the same columns of a block for eight rows, of x or of W: lane l has a quarter of row l / 4.
/// So a load of small blocks reads whole lines of W, and of x where it is in panels. The 16 bytes that a lane
/// has of a row and a chunk are its own fragments, as long as both operands take their k's in this order.
///
/// Where W is read by columns, rows of its blocks are k's (DirectColumns). Where x is multiplied by the
/// derivative at z, z is loaded as x is.
/// Where an item has too few blocks to fill its last chunk, both operands are zeros; so are what a block has
/// beyond the features of x, and rows of x that have no batch row.
template <class Config>
struct DirectOperands {
  using Element = typename Config::Element;
  using Table = typename Config::Table;
  using Share = WarpShare<Config>;
  using Product = typename Config::Product;
  enum : bool {
    kBlockScales = Config::has_block_scales,
    kCuts = Config::in_features != 0,
    kDerives = Config::has_z
  };
  enum : int {
    kHeld = Config::stages,
    kStride = Share::kStrides,
    kStepWeights = Config::weights,
    kElementBytes = sizeof(Element),
    kRowBytes = Config::block_in * kElementBytes,
    kLaneBytes = kRowBytes < 64 ? kRowBytes / 4 : 16,  ///< of a load
    kLaneWords = kLaneBytes / 4,
    kBlocks = 16 / kLaneBytes,
    kColumnBytes = Config::panels ? int{Panels<Config>::kBytes} : int{kRowBytes},
    kUnitsX = Config::tile_n / 8,
    kUnitsW = Config::warp_out / 8,
    kInterleaved = Config::by_columns ? int{DirectColumns<Config>::kTiles} : 1,
    kWarpBytes = 0,  ///< of shared memory
  };
  /// Whether zeros may be in place of what a chunk lacks, so that some chunks are not loaded as others are.
  enum : bool { kMayLack = kBlocks > 1 || kCuts };
  using ScheduleFeed = WarpFeed<Config, kBlocks, kStride, kColumnBytes>;
  /// What a lane has of eight rows and a chunk: one load for each block.
  struct Unit {
    unsigned loads[kBlocks][kLaneWords];
  };
  /// What it has of a chunk of one operand.
  template <int kUnits>
  struct Rows {
    Unit units[kUnits];
    __device__ __forceinline__ unsigned word(int unit, int i) const {
      return units[unit].loads[i / kLaneWords][i % kLaneWords];
    }
    __device__ __forceinline__ unsigned& word(int unit, int i) {
      return units[unit].loads[i / kLaneWords][i % kLaneWords];
    }
  };
  using Weight = typename Select<Config::by_columns, DirectColumns<Config>, Rows<kUnitsW>>::Type;

  /// One of the chunks under way, as the items of a worker take it. kLacks: whether the one that follows it
  /// there may lack blocks, or not exist.
  template <int kWhich, bool kLacks>
  struct Chunk {
    enum : int { kStepWeights = DirectOperands::kStepWeights };
    DirectOperands& all;
    __device__ __forceinline__ void acquire(bool) {
      if constexpr (kDerives)
        if (!skipped()) all.template derive<kWhich>();
      if constexpr (kBlockScales) all.template scale<kWhich>();
      if constexpr (Config::by_columns) all.w[kWhich].transpose();
    }
    /// Whether the chunk contributes nothing, and was not loaded.
    __device__ __forceinline__ bool skipped() const {
      return kBlockScales && kBlocks == 1 && all.block_scale[kWhich][0] == 0;
    }
    __device__ __forceinline__ void skip() {}
    __device__ __forceinline__ void release() { all.template load<kWhich, kLacks>(); }
    /// The word of this lane's row of eight that is the i-th of its fragments.
    __device__ __forceinline__ unsigned x(int unit, int i) const { return all.x[kWhich].word(unit, i); }
    __device__ __forceinline__ unsigned w(int unit, int i) const { return all.w[kWhich].word(unit, i); }
  };

  const int row = static_cast<int>(threadIdx.x % 32 / 4);  ///< the row of a unit that this lane has
  const char* const x_row;
  const char* const z_row;  ///< where x is multiplied by a derivative
  const char* const w_row;
  const long long x_unit;  ///< bytes from one unit of x to the next, where it is not in panels
  const long long z_unit;
  const int valid;  ///< batch rows of the tile from this lane's first on that exist
  ScheduleFeed feed;
  Rows<kUnitsX> x[kHeld];
  Rows<kUnitsX> z[kDerives ? int{kHeld} : 1];
  Weight w[kHeld];
  float block_scale[kBlockScales ? int{kHeld} : 1][kBlocks];

  __device__ __forceinline__ DirectOperands(const Table& table, int worker, const Source<Config>& from)
      : x_row(ptx::kept(reinterpret_cast<const char*>(from.x) +
                        row * (Config::panels ? kRowBytes : from.x_stride * kElementBytes) + place_in_row())),
        z_row(kDerives ? ptx::kept(reinterpret_cast<const char*>(from.z) +
                                   row * from.z_stride * kElementBytes + place_in_row())
                       : nullptr),
        w_row(ptx::kept(reinterpret_cast<const char*>(Share::weight(from)) + place_in_w())),
        x_unit(8 * from.x_stride * kElementBytes),
        z_unit(kDerives ? 8 * from.z_stride * kElementBytes : 0),
        valid(from.valid - row),
        feed(table, worker, first(), from.block_scales) {
    clear<0>();
    clear<kHeld - 1>();
    load<0, true>();
    if constexpr (kHeld > 1) load<1, true>();
  }

  __device__ static __forceinline__ int first() { return Share::first(); }
  template <int kWhich, bool kLacks>
  __device__ __forceinline__ Chunk<kWhich, kLacks> chunk() {
    return {*this};
  }
  /// Begins to load the next chunk of the feed, whose steps must be held.
  template <int kWhich, bool kLacks>
  __device__ __forceinline__ void load() {
    static_assert(kWhich < kHeld);
    if constexpr (kLacks && kMayLack) clear<kWhich>();
    load_block<kWhich, kLacks, 0>();
    feed.pass();
  }
  /// How many of the next chunks can be loaded as such that lack nothing. Few lack a block, or features:
  /// those at the ends of items. A chunk of one block that does not exist is not loaded.
  __device__ __forceinline__ int whole() const { return kMayLack ? feed.whole() : feed.left(); }
  __device__ __forceinline__ void refill() {
    if (feed.at % 32 == 0) feed.refill();
  }

 private:
  /// Multiplies what a chunk has of x by the derivative at z.
  template <int kWhich>
  __device__ __forceinline__ void derive() {
#pragma unroll
    for (int v = 0; v < kUnitsX * 4; ++v) {
      unsigned& word = x[kWhich].word(v / 4, v % 4);
      word = changed<Product>(word, z[kWhich].word(v / 4, v % 4), [](float value, float at) {
        return value * Config::Derivative::derivative(at);
      });
    }
  }
  /// Multiplies what a chunk has of W by the scales of its blocks.
  template <int kWhich>
  __device__ __forceinline__ void scale() {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const float factor = block_scale[kWhich][block];
      if (factor == 0 || factor == 1) continue;
#pragma unroll
      for (int v = 0; v < kUnitsW * kLaneWords; ++v) {
        unsigned& word = w[kWhich].word(v / kLaneWords, block * kLaneWords + v % kLaneWords);
        word = changed<Product>(word, 0, [=](float value, float) { return value * factor; });
      }
    }
  }
  __device__ static __forceinline__ int place_in_row() {
    return static_cast<int>(threadIdx.x % 4) * kLaneBytes;
  }
  __device__ static __forceinline__ int place_in_w() {
    if constexpr (Config::by_columns)
      return DirectColumns<Config>::place();
    else
      return static_cast<int>(threadIdx.x % 32 / 4) * kRowBytes + place_in_row();
  }
  template <int kWhich>
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < kUnitsX * 4; ++v) {
      x[kWhich].word(v / 4, v % 4) = 0;
      if constexpr (kDerives) z[kWhich].word(v / 4, v % 4) = 0;
    }
#pragma unroll
    for (int v = 0; v < kUnitsW * 4; ++v) w[kWhich].word(v / 4, v % 4) = 0;
  }
  template <int kWhich, bool kLacks, int kBlock>
  __device__ __forceinline__ void load_block() {
    const ChunkPlace place = feed.place(kBlock);
    bool present = !(kLacks || !kMayLack) || place.present();
    if constexpr (kBlockScales) block_scale[kWhich][kBlock] = feed.block_scale(kBlock);
    const int left = kLacks && kCuts ? feed.features_left(place) : kRowBytes;
    if constexpr (Config::by_columns) {
      w[kWhich].template load<kBlock>(place.in_w(w_row), present, left);
      if constexpr (kLacks && kCuts) present = present && left > place_in_row();
    } else {
      if constexpr (kLacks && kCuts) present = present && left > place_in_row();
      load_w<kWhich, kBlock, 0>(place.in_w(w_row), present);
    }
    load_x<kBlock, 0>(x[kWhich], place.in_x(x_row), x_unit, present);
    if constexpr (kDerives) load_x<kBlock, 0>(z[kWhich], place.in_x(z_row), z_unit, present);
    if constexpr (kBlock + 1 < kBlocks) load_block<kWhich, kLacks, kBlock + 1>();
  }
  template <int kWhich, int kBlock, int kUnit>
  __device__ __forceinline__ void load_w(const char* from, bool present) {
    ptx::load_once<static_cast<long long>(kUnit) * 8 * kRowBytes>(w[kWhich].units[kUnit].loads[kBlock], from,
                                                                  present);
    if constexpr (kUnit + 1 < kUnitsW) load_w<kWhich, kBlock, kUnit + 1>(from, present);
  }
  /// Loads what is laid out as x: units that are `unit` bytes apart, where x is not in panels.
  template <int kBlock, int kUnit>
  __device__ __forceinline__ void load_x(Rows<kUnitsX>& to, const char* from, long long unit, bool present) {
    enum : int { kFrom = Config::panels ? kUnit * 8 * kRowBytes : 0 };
    const bool exists = Config::full_tiles || Config::panels || 8 * kUnit < valid;
    ptx::load_cached<kFrom>(to.units[kUnit].loads[kBlock], from, present && exists);
    if constexpr (kUnit + 1 < kUnitsX)
      load_x<kBlock, kUnit + 1>(to, Config::panels ? from : from + unit, unit, present);
  }
};

}  // namespace sparsekiln
