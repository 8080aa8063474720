#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sparsekiln {

/// A 128-bit content digest (XXH3-128 in its canonical, big-endian byte order): equal on every machine.
struct Digest {
  std::array<std::uint8_t, 16> bytes{};

  [[nodiscard]] static Digest of(std::span<const std::byte> data);
  [[nodiscard]] static Digest of(std::string_view text);

  /// 32 lower-case hexadecimal digits.
  [[nodiscard]] std::string hex() const;

  friend auto operator<=>(const Digest&, const Digest&) = default;
};

}  // namespace sparsekiln
