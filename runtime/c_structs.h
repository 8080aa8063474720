#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>
#include <sparsekiln/error.h>

/// Structs of the C interface begin with `size`, the bytes of the struct that the caller was compiled with.
/// They grow at their ends, so a caller's may be smaller or larger than this library's.
namespace sparsekiln {

/// No struct is as large: what has such a size was not initialised.
inline constexpr std::size_t kMostStructBytes = std::size_t{1} << 16;

/// What a caller's struct begins with.
inline std::size_t stated_size(const void* object) {
  std::size_t size = 0;
  std::memcpy(&size, object, sizeof(size));
  return size;
}

/// Writes `value` to a caller's struct of `size` bytes: the members that it has. What it has beyond those of
/// this library becomes zeros.
template <typename Struct>
void write_struct(void* to, std::size_t size, Struct value) {
  value.size = size;
  std::memcpy(to, &value, std::min(size, sizeof(value)));
  if (size > sizeof(value)) std::memset(static_cast<std::byte*>(to) + sizeof(value), 0, size - sizeof(value));
}

/// The size of a struct that is to be written to. Throws `invalid_argument` where it is none.
inline std::size_t size_to_write(const void* to, const char* name) {
  const std::size_t size = stated_size(to);
  if (size <= sizeof(size) || size > kMostStructBytes)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} has size {}; set it to sizeof(*{}) before the call", name, size, name));
  return size;
}

/// A caller's struct as this library's: members that it lacks have their values of `defaults`. `least` is the
/// size of its first version. Throws `invalid_argument` for less, and for one that says something in members
/// that this library does not have.
template <typename Struct>
Struct read_struct(const void* from, const Struct& defaults, std::size_t least, const char* name) {
  const std::size_t size = stated_size(from);
  if (size < least || size > kMostStructBytes)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("{} has size {}, and the smallest that there is has {}: its init function sets it", name,
                    size, least));
  const auto* const bytes = static_cast<const std::byte*>(from);
  if (std::any_of(bytes + std::min(size, sizeof(Struct)), bytes + size,
                  [](std::byte byte) { return byte != std::byte{}; }))
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("{} has {} bytes, of which this library knows {}, and the others are not all zero: "
                    "they ask for what a newer library has; a newer one would work, or zeros there",
                    name, size, sizeof(Struct)));
  Struct read = defaults;
  std::memcpy(&read, bytes, std::min(size, sizeof(Struct)));
  read.size = sizeof(Struct);
  return read;
}

}  // namespace sparsekiln
