#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace sparsekiln::cache {

/// Appends an unsigned integer, lowest byte first, as in all files of this module.
template <typename Integer>
void append_integer(std::vector<std::byte>& out, Integer value) {
  for (std::size_t i = 0; i < sizeof(Integer); ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

/// The integer at `offset`, which must be within the bytes.
template <typename Integer>
[[nodiscard]] Integer read_at(std::span<const std::byte> bytes, std::size_t offset) {
  Integer value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i)
    value |= static_cast<Integer>(static_cast<Integer>(bytes[offset + i]) << (8 * i));
  return value;
}

}  // namespace sparsekiln::cache
