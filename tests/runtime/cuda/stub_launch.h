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
};

}  // namespace stub
