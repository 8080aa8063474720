#pragma once

#include "ptx_mma.cuh"
#include "schedule.cuh"
#include "swizzle.cuh"

// Operand loading for tensor cores, of an operand of which each k is a row in memory.

namespace sparsekiln {

/// The 16-byte units of a chunk that a thread copies, where each k is a row of kWide of them. All are of one
/// block of the chunk's kBlocks, thread's `own`, which has kDepth rows: the threads of one block take its
/// units in the order of memory. Of 8 neighbouring threads, which write at once, kShare are of each block;
/// those of different blocks are in different places of a line, so that they meet no bank conflict.
template <int kThreads, int kWide, int kDepth, int kBlocks, class Places>
struct ColumnPasses {
  enum : int {
    kShare = 8 / kBlocks,
    kOfBlock = kDepth * kWide,
    kAtOnce = kThreads / kBlocks,  ///< units of a block
    kPasses = (kOfBlock + kAtOnce - 1) / kAtOnce,
    kBlockBytes = kOfBlock * 16,
    kBytes = kBlocks * kBlockBytes,
    kPassRows = kAtOnce / kWide,
  };
  enum : bool {
    /// The places of all passes differ by constants and by how their rows turn: they are whole rows, or parts
    /// of one.
    kStepped = kAtOnce % kWide == 0 ? kPassRows % 8 == 0 || (kPassRows & (kPassRows - 1)) == 0
                                    : kWide % kAtOnce == 0 && kAtOnce % 8 == 0,
  };

  /// Of the thread's first unit, within its block. `sibling`: which of the kShare threads it is.
  __device__ static __forceinline__ int first(int own, int sibling) {
    const int group = static_cast<int>(threadIdx.x / 8);
    return group / kBlocks * 8 + (group % kBlocks ^ own) * kShare + sibling;
  }
  __device__ static __forceinline__ unsigned place(int own, int unit) {
    return static_cast<unsigned>(own * kBlockBytes) + Places::offset(unit / kWide, unit % kWide);
  }
  /// How the rows of a pass turn, in bytes, against those of the first.
  template <int kPass>
  __device__ static constexpr __forceinline__ unsigned turned() {
    return Places::turn(kPass * kAtOnce / kWide) * 16;
  }
};

/// W, read by columns: of each block, the k's of a chunk lie one behind the other as they are. A chunk has
/// kDepth of them of each of its blocks.
template <class Config, int kDepth, int kBlocks, class Places>
struct ColumnsOfW {
  enum : int {
    kElementBytes = sizeof(typename Config::Element),
    kWide = Config::block_out * kElementBytes / 16,
    kBlockBytes = Config::block_out * Config::block_in * kElementBytes,
  };
  using Walk = ColumnPasses<Config::threads, kWide, kDepth, kBlocks, Places>;
  enum : int { kPasses = Walk::kPasses, kBytes = Walk::kBytes };

  const int own;
  const int first;             ///< this thread's first unit of its block
  const unsigned place;        ///< where it goes in a stage
  const char* const w;         ///< where it comes from, of block 0
  const char* from = nullptr;  ///< of the chunk's
  int left = 0;                ///< k's of the chunk from its first on, that x has features for

  /// `own`, `sibling`: as ColumnPasses has them.
  __device__ __forceinline__ ColumnsOfW(const typename Config::Element* weight, int own_block, int sibling)
      : own(own_block),
        first(Walk::first(own_block, sibling)),
        place(ptx::kept(Walk::place(own, first))),
        w(ptx::kept(reinterpret_cast<const char*>(weight) + first * 16)) {}

  /// Turns to a chunk: to part `part` of block `block`, which is in block column `column` of the product.
  __device__ __forceinline__ void begin(int block, int column, int part) {
    from = w + static_cast<long long>(block) * kBlockBytes;
    if constexpr (kBlocks == 1) from += part * kBytes;
    if constexpr (Config::in_features != 0)
      left = features_left<Config>(column) - (kBlocks == 1 ? part * kDepth : 0);
  }
  /// Calls use.unit for the thread's unit of a pass, if it has one. `to`: `place` in the chunk's stage;
  /// `bytes`: 16, or 0 where the block is absent.
  template <int kPass, class Use>
  __device__ __forceinline__ void copy(Use use, unsigned to, int bytes) const {
    enum : int { kMoved = kPass * Walk::kAtOnce * 16 };
    if (Walk::kOfBlock % Walk::kAtOnce != 0 && first + kPass * Walk::kAtOnce >= Walk::kOfBlock) return;
    if (Config::in_features != 0 && (first + kPass * Walk::kAtOnce) / kWide >= left) bytes = 0;
    if constexpr (Walk::kStepped)
      use.template unit<kMoved, kMoved>(to ^ Walk::template turned<kPass>(), from, bytes);
    else
      use.template unit<0, kMoved>(to - place + Walk::place(own, first + kPass * Walk::kAtOnce), from, bytes);
  }
};

/// x where its features are rows: each k's tile_n batch entries. Those that do not exist become zeros, and so
/// do features from the last one on.
template <class Config, int kDepth, int kBlocks, class Places>
struct ColumnsOfX {
  enum : int {
    kElementBytes = sizeof(typename Config::Element),
    kElements = 16 / kElementBytes,
    kWide = Config::tile_n / kElements,
  };
  using Walk = ColumnPasses<Config::threads, kWide, kDepth, kBlocks, Places>;
  enum : int { kPasses = Walk::kPasses, kBytes = Walk::kBytes };

  const int own;
  const int first;         ///< this thread's first unit of its block
  const unsigned place;    ///< where it goes in a stage
  const char* const x;     ///< of the first feature
  const long long stride;  ///< from one feature to the next, bytes
  const int valid;
  const char* from = nullptr;  ///< the chunk's first feature
  int left = 0;                ///< k's of the chunk from its first on, that are features of x

  /// `own`, `sibling`: as ColumnPasses has them.
  __device__ __forceinline__ ColumnsOfX(const typename Config::Element* activation, long long x_stride,
                                        int entries, int own_block, int sibling)
      : own(own_block),
        first(Walk::first(own_block, sibling)),
        place(ptx::kept(Walk::place(own, first))),
        x(ptx::kept(reinterpret_cast<const char*>(activation) + moved(first, x_stride * kElementBytes))),
        stride(x_stride * kElementBytes),
        valid(entries) {}

  /// Turns to a chunk: to part `part` of block column `column`.
  __device__ __forceinline__ void begin(int column, int part, bool) {
    const int ahead = kBlocks == 1 ? part * kDepth : 0;
    from = x + (static_cast<long long>(column) * Config::block_in + ahead) * stride;
    if constexpr (Config::in_features != 0) left = features_left<Config>(column) - ahead;
  }
  /// Calls use.unit for the thread's unit of a pass, if it has one. `to`: `place` in the chunk's stage.
  template <int kPass, int kTo, class Use>
  __device__ __forceinline__ void copy(Use use, unsigned to, bool present) const {
    const int unit = first + kPass * Walk::kAtOnce;
    if (Walk::kOfBlock % Walk::kAtOnce != 0 && unit >= Walk::kOfBlock) return;
    int bytes = 16;
    if constexpr (!Config::full_tiles)
      bytes = min(max(valid - unit % kWide * kElements, 0), int{kElements}) * kElementBytes;
    if (!present || (Config::in_features != 0 && unit / kWide >= left)) bytes = 0;
    const char* const at = from + (Walk::kAtOnce % kWide == 0 ? kPass * Walk::kPassRows * stride
                                                              : moved(unit, stride) - moved(first, stride));
    if constexpr (Walk::kStepped)
      use.template unit<kTo + kPass * Walk::kAtOnce * 16, 0, Config::alignment>(
          to ^ Walk::template turned<kPass>(), at, bytes);
    else
      use.template unit<kTo, 0, Config::alignment>(to - place + Walk::place(own, unit), at, bytes);
  }

 private:
  __device__ static __forceinline__ long long moved(int unit, long long bytes) {
    return unit / kWide * bytes + unit % kWide * 16;
  }
};

}  // namespace sparsekiln
