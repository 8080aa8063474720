#pragma once

#include "ptx_mma.cuh"
#include "schedule.cuh"
#include "swizzle.cuh"

// Operand loading for tensor cores, of activations whose rows are batch entries, contiguous along k.

namespace sparsekiln {

/// A tile of tile_n rows, kUnits × 16 bytes of each, of one block or of several: a thread copies one unit of
/// every kPassRows-th row. Rows from the last batch entry on, and features from the last one on, become
/// zeros.
template <class Config, int kUnits>
struct RowsOfX {
  using Element = typename Config::Element;
  using Rows = Swizzle<kUnits>;
  enum : int {
    kElementBytes = sizeof(Element),
    kElements = 16 / kElementBytes,  ///< of a unit
    kBlockUnits = Config::block_in / kElements,
    kCount = Config::tile_n * kUnits,
    kPassRows = Config::threads / kUnits,
    kPassBytes = kPassRows * kUnits * 16,
  };

  const int row;         ///< of shared memory, that this thread copies to in the first pass
  const unsigned place;  ///< its unit there, from the first row on, in bytes
  const char* const x;
  const long long pass;  ///< from one pass to the next, bytes
  const int valid;       ///< batch entries of the tile that exist
  const char* from = nullptr;
  int entries = 0;  ///< of the tile from `row` on, that exist
  int bytes = 16;   ///< of the unit's features, that exist

  __device__ __forceinline__ RowsOfX(const Element* activation, long long stride, int entries_of_tile,
                                     unsigned own_place)
      : row(static_cast<int>(threadIdx.x / kUnits)),
        place(own_place),
        x(ptx::kept(
            reinterpret_cast<const char*>(activation + row * stride + unit() % kBlockUnits * kElements))),
        pass(stride * (kPassRows * kElementBytes)),
        valid(entries_of_tile) {}

  /// Turns to a chunk: to part `part` of block column `column`; not `present`, to zeros.
  __device__ __forceinline__ void begin(int column, int part, bool present) {
    if constexpr (!Config::full_tiles) entries = present ? valid - row : 0;
    from = x + static_cast<long long>(column) * (Config::block_in * kElementBytes);
    if constexpr (kUnits < kBlockUnits) from += part * (kUnits * 16);
    bytes = existing_bytes(column, part);
  }
  /// Of this thread's units in a chunk, those that exist.
  __device__ static __forceinline__ int existing_bytes(int column, int part) {
    if constexpr (Config::in_features == 0) return 16;
    const int first = part * (kUnits * kElements) + unit() % kBlockUnits * kElements;
    return min(max(features_left<Config>(column) - first, 0), int{kElements}) * kElementBytes;
  }
  /// Calls use.unit for the thread's unit of a pass, if it has one; passes go in order. `to`: `place` in the
  /// chunk's stage.
  template <int kPass, int kTo, class Use>
  __device__ __forceinline__ void copy(Use use, unsigned to, bool present) {
    if (kCount % Config::threads != 0 && static_cast<int>(threadIdx.x) + kPass * Config::threads >= kCount)
      return;
    const bool readable = Config::full_tiles ? present : kPass * kPassRows < entries;
    use.template unit<kPass * kPassBytes + kTo, 0, Config::alignment>(
        Rows::template turned<kPassRows, kPass>(to), from, readable ? bytes : 0);
    from += pass;
  }

 private:
  __device__ static __forceinline__ int unit() { return static_cast<int>(threadIdx.x % kUnits); }
};

}  // namespace sparsekiln
