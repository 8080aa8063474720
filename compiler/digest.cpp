#include <sparsekiln/digest.h>

#include <algorithm>
#include <iterator>

#include <xxhash.h>

namespace sparsekiln {

Digest Digest::of(std::span<const std::byte> data) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(data.data(), data.size()));
  Digest digest;
  std::copy(std::begin(canonical.digest), std::end(canonical.digest), digest.bytes.begin());
  return digest;
}

Digest Digest::of(std::string_view text) { return of(std::as_bytes(std::span(text.data(), text.size()))); }

std::string Digest::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace sparsekiln
