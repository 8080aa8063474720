#pragma once

#include "lattice.cuh"
#include "load_rows.cuh"
#include "ptx_mma.cuh"
#include "schedule.cuh"
#include "swizzle.cuh"

// Operand loading for tensor cores: activations of a convolution, whose rows are points of its lattice.

namespace sparsekiln {

/// As RowsOfX (load_rows.cuh), but each row is read where its point and the tap of the chunk say. Rows that a
/// tap does not find in x become zeros.
template <class Config, int kUnits>
struct PointsOfX {
  using Element = typename Config::Element;
  using Rows = Swizzle<kUnits>;
  using Points = Lattice<Config>;
  enum : int {
    kElementBytes = sizeof(Element),
    kBlockUnits = Config::block_in * kElementBytes / 16,
    kCount = Config::tile_n * kUnits,
    kPassRows = Config::threads / kUnits,
    kPassBytes = kPassRows * kUnits * 16,
    kPasses = (kCount + Config::threads - 1) / Config::threads,
  };

  const unsigned place;  ///< byte offset of the thread's first unit from the first row
  const char* const x;
  const long long stride;  ///< bytes from one position to the next
  const Images<Config> images;
  typename Points::Row rows[kPasses];
  typename Points::Tap tap{};
  const char* from = nullptr;
  int bytes = 16;  ///< bytes of the unit's features that exist

  __device__ __forceinline__ PointsOfX(const Element* activation, long long row_stride,
                                       const Source<Config>& tile, unsigned own_place)
      : place(own_place),
        x(ptx::kept(reinterpret_cast<const char*>(activation) + unit() % kBlockUnits * 16)),
        stride(row_stride * kElementBytes),
        images(tile.images) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int row = static_cast<int>(threadIdx.x / kUnits) + pass * kPassRows;
      rows[pass] = Points::row(tile.first + row, row < tile.valid, images);
    }
  }

  __device__ __forceinline__ void begin(int column, int segment, bool) {
    tap = Points::tap(column, images);
    from = x + static_cast<long long>(tap.column) * (Config::block_in * kElementBytes);
    if constexpr (kUnits < kBlockUnits) from += segment * (kUnits * 16);
    bytes = RowsOfX<Config, kUnits>::existing_bytes(column, segment);
  }
  /// Calls use.unit for the thread's unit of a pass, if it has one. `to`: `place` in the chunk's stage.
  template <int kPass, int kTo, class Use>
  __device__ __forceinline__ void copy(Use use, unsigned to, bool present) {
    if (kCount % Config::threads != 0 && static_cast<int>(threadIdx.x) + kPass * Config::threads >= kCount)
      return;
    const bool readable = present && Points::reads(rows[kPass], tap);
    const int position = rows[kPass].position + tap.displacement;
    use.template unit<kPass * kPassBytes + kTo, 0, Config::alignment>(
        Rows::template flipped<kPassRows, kPass>(to), from + (readable ? position * stride : 0),
        readable ? bytes : 0);
  }

 private:
  __device__ static __forceinline__ int unit() { return static_cast<int>(threadIdx.x % kUnits); }
};

}  // namespace sparsekiln
