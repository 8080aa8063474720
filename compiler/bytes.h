#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace sparsekiln {

/// Appends little-endian fields to a byte string.
class ByteWriter {
 public:
  template <typename T>
    requires(std::is_integral_v<T> || std::is_enum_v<T>)
  void put(T value) {
    const auto bits = static_cast<std::uint64_t>(value);
    for (std::size_t byte = 0; byte < sizeof(T); ++byte)
      bytes_.push_back(static_cast<std::byte>((bits >> (8 * byte)) & 0xff));
  }
  void put_bytes(std::span<const std::byte> data) {
    put(static_cast<std::uint64_t>(data.size()));
    bytes_.insert(bytes_.end(), data.begin(), data.end());
  }
  void put_text(std::string_view text) { put_bytes(std::as_bytes(std::span(text.data(), text.size()))); }

  [[nodiscard]] std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads what ByteWriter wrote, and trusts nothing: throws `Bad` (an std::runtime_error) at the first field
/// that is out of bounds, with its offset.
class ByteReader {
 public:
  struct Bad : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
    requires(std::is_integral_v<T> && !std::is_same_v<T, bool>)
  [[nodiscard]] T get() {
    const std::span<const std::byte> field = take(sizeof(T));
    std::uint64_t bits = 0;
    for (std::size_t byte = 0; byte < sizeof(T); ++byte)
      bits |= std::to_integer<std::uint64_t>(field[byte]) << (8 * byte);
    return static_cast<T>(bits);
  }
  /// An enumerator from 0 to `last`.
  template <typename T>
    requires std::is_enum_v<T>
  [[nodiscard]] T get_enum(T last) {
    const auto value = get<std::underlying_type_t<T>>();
    if (value > static_cast<std::underlying_type_t<T>>(last)) fail("an enumerator out of range");
    return static_cast<T>(value);
  }
  [[nodiscard]] bool get_bool() {
    const auto value = get<std::uint8_t>();
    if (value > 1) fail("a boolean that is neither 0 nor 1");
    return value == 1;
  }
  /// How many elements of at least `element_bytes` each follow: never more than the remaining bytes can hold.
  [[nodiscard]] std::size_t get_count(std::size_t element_bytes) {
    const auto count = get<std::uint64_t>();
    if (count > (bytes_.size() - at_) / element_bytes) fail("a count larger than the bytes that follow");
    return static_cast<std::size_t>(count);
  }
  [[nodiscard]] std::span<const std::byte> get_bytes() { return take(get_count(1)); }
  /// The next `size` bytes.
  [[nodiscard]] std::span<const std::byte> take(std::uint64_t size) {
    if (size > bytes_.size() - at_) fail("the end too early");
    const std::span<const std::byte> field = bytes_.subspan(at_, static_cast<std::size_t>(size));
    at_ += field.size();
    return field;
  }
  [[nodiscard]] std::string get_text() {
    const std::span<const std::byte> data = get_bytes();
    return {reinterpret_cast<const char*>(data.data()), data.size()};
  }
  void expect_end() const {
    if (at_ != bytes_.size()) fail("bytes after the end");
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw Bad(what + " at byte " + std::to_string(at_));
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

}  // namespace sparsekiln
