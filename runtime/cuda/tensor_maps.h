#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <cuda.h>
#include <sparsekiln/binary.h>

#include "runtime/cuda/context.h"
#include "runtime/device.h"

namespace sparsekiln::cuda {

/// The tensor maps of one entry, made for every launch: they hold addresses, n and strides.
class TensorMaps {
 public:
  /// Throws `driver`, with what would work, where there are some and the device is older than sm_90 or the
  /// driver does not make any, and `internal` for a map that no emitter makes.
  TensorMaps(const Context& context, const Entry& entry);

  [[nodiscard]] bool empty() const noexcept { return recipes_.empty(); }
  /// Writes one map for each of the entry's, at most kMostTensorMaps; they must outlive the call of the
  /// driver that launches. The context must be current. Throws `driver`, with what the map is of.
  void encode(const Context& context, const Launch& launch, std::span<CUtensorMap> maps) const;

 private:
  struct Recipe {
    TensorMap map;
    CUtensorMapDataType type;
    std::uint16_t address;  ///< offsets in LaunchOperands
    std::uint16_t stride;   ///< where TensorMap::stride is 0
  };
  /// What a launch fills in.
  struct Matrix {
    void* address;
    std::array<cuuint64_t, 2> extents;  ///< of a row, and rows
    cuuint64_t row_bytes;               ///< from one row to the next
  };
  static constexpr cuuint32_t kMostDimensions = 5;
  /// As cuTensorMapEncodeTiled takes them, the innermost first.
  struct Dimensions {
    cuuint32_t count;
    std::array<cuuint64_t, kMostDimensions> extents;
    std::array<cuuint64_t, kMostDimensions - 1> strides;  ///< in bytes, of all but the innermost
    std::array<cuuint32_t, kMostDimensions> box;
    std::array<cuuint32_t, kMostDimensions> steps{1, 1, 1, 1, 1};  ///< each how many-th element is copied
  };

  [[nodiscard]] static Dimensions dimensions_of(const TensorMap& map, const Matrix& matrix);
  [[nodiscard]] static Matrix matrix_of(const Recipe& recipe, const Launch& launch);
  [[nodiscard]] CUresult encode(const Context& context, const Recipe& recipe, const Matrix& matrix,
                                CUtensorMap& map) const;
  [[noreturn]] void fail(const Context& context, CUresult result, std::size_t index, const Matrix& matrix,
                         std::int64_t n) const;

  std::vector<Recipe> recipes_;
  std::string kernel_;  ///< the name, for messages
};

}  // namespace sparsekiln::cuda
