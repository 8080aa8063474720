// Entries of the store: bytes from a disk that nobody vouches for.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include <sparsekiln/digest.h>

#include "cache/entry.h"
#include "cache/identity.h"

using sparsekiln::Digest;
using sparsekiln::cache::Damage;
using sparsekiln::cache::decode;
using sparsekiln::cache::encode;
using sparsekiln::cache::Identity;

namespace {

/// What decodes must be exactly what encodes: an entry has one byte form.
void check(std::span<const std::byte> bytes) {
  Damage damage = Damage::none;
  const auto entry = decode(bytes, damage);
  if (entry.has_value() != (damage == Damage::none)) std::abort();
  if (!entry) return;
  const auto again = encode(entry->identity, entry->payload);
  if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check(bytes);

  // With a checksum that holds, so that what lies behind it is reached too.
  const Digest digest = Digest::of(bytes);
  const auto checksum = std::as_bytes(std::span(digest.bytes));
  std::vector<std::byte> sealed(bytes.begin(), bytes.end());
  sealed.insert(sealed.end(), checksum.begin(), checksum.end());
  check(sealed);

  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto identity = Identity::from_canonical(text); identity && identity->canonical() != text)
    std::abort();
  return 0;
}
