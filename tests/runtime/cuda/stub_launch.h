#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace stub {

/// A launch as the stub records it.
struct Launch {
  std::string function;
  std::array<unsigned, 3> grid{};
  std::array<unsigned, 3> block{};
  unsigned shared_bytes = 0;
  void* stream = nullptr;
  std::vector<std::vector<std::byte>> arguments;
  bool captured = false;  ///< into a graph
  std::array<unsigned, 3> cluster{1, 1, 1};
  bool overlaps_previous = false;  ///< programmatic stream serialization
};

/// A tensor map as it was asked for.
struct TensorMap {
  int type = 0;  ///< a CUtensorMapDataType
  const void* address = nullptr;
  std::vector<unsigned long long> extents;  ///< the innermost first, as all below
  std::vector<unsigned long long> strides;  ///< bytes
  std::vector<unsigned> box;
  std::vector<unsigned> element_strides;
  int interleave = 0;
  int swizzle = 0;  ///< a CUtensorMapSwizzle
  int l2_promotion = 0;
  int fill = 0;
};

/// The 128 bytes that the stub makes of the tensor map of this number, the first that is recorded being 0.
[[nodiscard]] inline std::vector<std::byte> tensor_map_bytes(std::size_t number) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < 128; ++i) bytes.push_back(static_cast<std::byte>(16 * (number + 1) + i % 16));
  return bytes;
}

}  // namespace stub
