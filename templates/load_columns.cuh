#pragma once

#include "ptx_mma.cuh"
#include "schedule.cuh"
#include "swizzle.cuh"

// Operand loading for tensor cores: operands in which each k is a row in memory.

namespace sparsekiln {

/// The 16-byte units of a chunk that a thread copies, where each k is a row of kWide units. All units of a
/// thread belong to one of the chunk's kBlocks blocks, `own`, which has kDepth rows; the threads of one block
/// take its units in memory order. 8 neighboring threads write at once; kShare of them copy from each block.
/// Units of different blocks go to different places of a line, so that the writes meet no bank conflict.
template <int kThreads, int kWide, int kDepth, int kBlocks, class Places>
struct ColumnPasses {
  enum : int {
    kShare = 8 / kBlocks,
    kOfBlock = kDepth * kWide,
    kAtOnce = kThreads / kBlocks,  ///< units of a block in one pass
    kPasses = (kOfBlock + kAtOnce - 1) / kAtOnce,
    kBlockBytes = kOfBlock * 16,
    kBytes = kBlocks * kBlockBytes,
    kPassRows = kAtOnce / kWide,
  };
  enum : bool {
    /// Whether the places of all passes differ by a constant and an exclusive or: passes are whole rows, or
    /// fractions of one row.
    kStepped = kAtOnce % kWide == 0 ? kPassRows % 8 == 0 || (kPassRows & (kPassRows - 1)) == 0
                                    : kWide % kAtOnce == 0 && kAtOnce % 8 == 0,
  };

  /// The thread's first unit within its block. `sibling`: which of the kShare threads it is.
  __device__ static __forceinline__ int first(int own, int sibling) {
    const int group = static_cast<int>(threadIdx.x / 8);
    return group / kBlocks * 8 + (group % kBlocks ^ own) * kShare + sibling;
  }
  __device__ static __forceinline__ unsigned place(int own, int unit) {
    return static_cast<unsigned>(own * kBlockBytes) + Places::offset(unit / kWide, unit % kWide);
  }
  /// What the byte offsets of a pass are combined with by exclusive or, compared with those of the first
  /// pass.
  template <int kPass>
  __device__ static constexpr __forceinline__ unsigned flipped() {
    return Places::mask(kPass * kAtOnce / kWide) * 16;
  }
};

/// W, read by columns: the k's of a chunk follow each other in each block. A chunk has kDepth of them from
/// each of its blocks.
template <class Config, int kDepth, int kBlocks, class Places>
struct ColumnsOfW {
  enum : int {
    kElementBytes = sizeof(typename Config::Element),
    kWide = Config::block_out * kElementBytes / 16,
    kBlockBytes = Config::block_out * Config::block_in * kElementBytes,
  };
  using Passes = ColumnPasses<Config::threads, kWide, kDepth, kBlocks, Places>;
  enum : int { kPasses = Passes::kPasses, kBytes = Passes::kBytes };

  const int own;
  const int first;             ///< this thread's first unit of its block
  const unsigned place;        ///< its byte offset in a stage
  const char* const w;         ///< its address in block 0
  const char* from = nullptr;  ///< its address in the chunk's block
  int left = 0;                ///< k's of the chunk, from its first one on, for which x has features

  /// `own`, `sibling`: see ColumnPasses.
  __device__ __forceinline__ ColumnsOfW(const typename Config::Element* weight, int own_block, int sibling)
      : own(own_block),
        first(Passes::first(own_block, sibling)),
        place(ptx::kept(Passes::place(own, first))),
        w(ptx::kept(reinterpret_cast<const char*>(weight) + first * 16)) {}

  /// Selects the chunk: segment `segment` of block `block`, `ahead` bytes further on than W's, which is in
  /// block column `column` of the product.
  __device__ __forceinline__ void begin(int block, int column, int segment, long long ahead) {
    from = w + ahead + static_cast<long long>(block) * kBlockBytes;
    if constexpr (kBlocks == 1) from += segment * kBytes;
    if constexpr (Config::in_features != 0)
      left = features_left<Config>(column) - (kBlocks == 1 ? segment * kDepth : 0);
  }
  /// Calls use.unit for the thread's unit of a pass, if it has one. `to`: `place` in the chunk's stage;
  /// `bytes`: 16, or 0 where the block is absent.
  template <int kPass, class Use>
  __device__ __forceinline__ void copy(Use use, unsigned to, int bytes) const {
    enum : int { kMoved = kPass * Passes::kAtOnce * 16 };
    if (Passes::kOfBlock % Passes::kAtOnce != 0 && first + kPass * Passes::kAtOnce >= Passes::kOfBlock)
      return;
    if (Config::in_features != 0 && (first + kPass * Passes::kAtOnce) / kWide >= left) bytes = 0;
    if constexpr (Passes::kStepped)
      use.template unit<kMoved, kMoved>(to ^ Passes::template flipped<kPass>(), from, bytes);
    else
      use.template unit<0, kMoved>(to - place + Passes::place(own, first + kPass * Passes::kAtOnce), from,
                                   bytes);
  }
};

/// x, where its features are rows: each k has tile_n batch rows. Batch rows and features that do not exist
/// become zeros.
template <class Config, int kDepth, int kBlocks, class Places>
struct ColumnsOfX {
  enum : int {
    kElementBytes = sizeof(typename Config::Element),
    kElements = 16 / kElementBytes,
    kWide = Config::tile_n / kElements,
  };
  using Passes = ColumnPasses<Config::threads, kWide, kDepth, kBlocks, Places>;
  enum : int { kPasses = Passes::kPasses, kBytes = Passes::kBytes };

  const int own;
  const int first;         ///< this thread's first unit of its block
  const unsigned place;    ///< its byte offset in a stage
  const char* const x;     ///< the first feature
  const long long stride;  ///< bytes from one feature to the next
  const int valid;
  const char* from = nullptr;  ///< the chunk's first feature
  int left = 0;                ///< k's of the chunk, from its first one on, that are features of x

  /// `own`, `sibling`: see ColumnPasses.
  __device__ __forceinline__ ColumnsOfX(const typename Config::Element* activation, long long x_stride,
                                        int batch_rows, int own_block, int sibling)
      : own(own_block),
        first(Passes::first(own_block, sibling)),
        place(ptx::kept(Passes::place(own, first))),
        x(ptx::kept(reinterpret_cast<const char*>(activation) + moved(first, x_stride * kElementBytes))),
        stride(x_stride * kElementBytes),
        valid(batch_rows) {}

  /// Selects the chunk: segment `segment` of block column `column`.
  __device__ __forceinline__ void begin(int column, int segment, bool) {
    const int ahead = kBlocks == 1 ? segment * kDepth : 0;
    from = x + (static_cast<long long>(column) * Config::block_in + ahead) * stride;
    if constexpr (Config::in_features != 0) left = features_left<Config>(column) - ahead;
  }
  /// Calls use.unit for the thread's unit of a pass, if it has one. `to`: `place` in the chunk's stage.
  template <int kPass, int kTo, class Use>
  __device__ __forceinline__ void copy(Use use, unsigned to, bool present) const {
    const int unit = first + kPass * Passes::kAtOnce;
    if (Passes::kOfBlock % Passes::kAtOnce != 0 && unit >= Passes::kOfBlock) return;
    int bytes = 16;
    if constexpr (!Config::full_tiles)
      bytes = min(max(valid - unit % kWide * kElements, 0), int{kElements}) * kElementBytes;
    if (!present || (Config::in_features != 0 && unit / kWide >= left)) bytes = 0;
    const char* const at = from + (Passes::kAtOnce % kWide == 0 ? kPass * Passes::kPassRows * stride
                                                                : moved(unit, stride) - moved(first, stride));
    if constexpr (Passes::kStepped)
      use.template unit<kTo + kPass * Passes::kAtOnce * 16, 0, Config::alignment>(
          to ^ Passes::template flipped<kPass>(), at, bytes);
    else
      use.template unit<kTo, 0, Config::alignment>(to - place + Passes::place(own, unit), at, bytes);
  }

 private:
  __device__ static __forceinline__ long long moved(int unit, long long bytes) {
    return unit / kWide * bytes + unit % kWide * 16;
  }
};

}  // namespace sparsekiln
