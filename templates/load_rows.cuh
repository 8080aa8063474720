#pragma once

#include "ptx_mma.cuh"
#include "schedule.cuh"
#include "swizzle.cuh"

// Operand loading for tensor cores: activations whose rows are batch rows, contiguous along k.

namespace sparsekiln {

/// A tile of tile_n rows, kUnits × 16 bytes of each, from one block or several. A thread copies one unit of
/// every kPassRows-th row. Batch rows and features that do not exist become zeros.
template <class Config, int kUnits>
struct RowsOfX {
  using Element = typename Config::Element;
  using Rows = Swizzle<kUnits>;
  enum : int {
    kElementBytes = sizeof(Element),
    kElements = 16 / kElementBytes,  ///< elements of a unit
    kBlockUnits = Config::block_in / kElements,
    kCount = Config::tile_n * kUnits,
    kPassRows = Config::threads / kUnits,
    kPassBytes = kPassRows * kUnits * 16,
  };

  const int row;         ///< the row of shared memory that this thread writes in the first pass
  const unsigned place;  ///< byte offset of the thread's first unit from the first row
  const char* const x;
  const long long pass;  ///< bytes from one pass to the next
  const int valid;       ///< batch rows of the tile that exist
  const char* from = nullptr;
  int batch_rows = 0;  ///< batch rows from `row` on that exist
  int bytes = 16;      ///< bytes of the unit's features that exist

  __device__ __forceinline__ RowsOfX(const Element* activation, long long stride, int batch_rows_of_tile,
                                     unsigned own_place)
      : row(static_cast<int>(threadIdx.x / kUnits)),
        place(own_place),
        x(ptx::kept(
            reinterpret_cast<const char*>(activation + row * stride + unit() % kBlockUnits * kElements))),
        pass(stride * (kPassRows * kElementBytes)),
        valid(batch_rows_of_tile) {}

  /// Selects the chunk: segment `segment` of block column `column`, or zeros if not `present`.
  __device__ __forceinline__ void begin(int column, int segment, bool present) {
    if constexpr (!Config::full_tiles) batch_rows = present ? valid - row : 0;
    from = x + static_cast<long long>(column) * (Config::block_in * kElementBytes);
    if constexpr (kUnits < kBlockUnits) from += segment * (kUnits * 16);
    bytes = existing_bytes(column, segment);
  }
  /// Bytes of this thread's units in a chunk that exist.
  __device__ static __forceinline__ int existing_bytes(int column, int segment) {
    if constexpr (Config::in_features == 0) return 16;
    const int first = segment * (kUnits * kElements) + unit() % kBlockUnits * kElements;
    return min(max(features_left<Config>(column) - first, 0), int{kElements}) * kElementBytes;
  }
  /// Calls use.unit for the thread's unit of a pass, if it has one. Passes must be called in order. `to`:
  /// `place` in the chunk's stage.
  template <int kPass, int kTo, class Use>
  __device__ __forceinline__ void copy(Use use, unsigned to, bool present) {
    if (kCount % Config::threads != 0 && static_cast<int>(threadIdx.x) + kPass * Config::threads >= kCount)
      return;
    const bool readable = Config::full_tiles ? present : kPass * kPassRows < batch_rows;
    use.template unit<kPass * kPassBytes + kTo, 0, Config::alignment>(
        Rows::template flipped<kPassRows, kPass>(to), from, readable ? bytes : 0);
    from += pass;
  }

 private:
  __device__ static __forceinline__ int unit() { return static_cast<int>(threadIdx.x % kUnits); }
};

}  // namespace sparsekiln
