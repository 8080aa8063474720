// What comes from the server of a shared level of the cache: bytes from a server that is not trusted.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "cache/entry.h"
#include "cache/remote.h"

using namespace sparsekiln::cache;

namespace {

const Identity& wanted() {
  static const Identity identity = Identity().add("what", "fuzz");
  return identity;
}

/// What is believed is exactly what was sealed.
void check(std::span<const std::byte> bytes) {
  std::string why;
  const auto payload = unseal(wanted(), bytes, Keys(), true, why);
  if (payload.has_value() != why.empty()) std::abort();
  if (!payload) return;
  const auto entry = encode(wanted(), *payload);
  if (bytes.size() < entry.size() || !std::ranges::equal(bytes.last(entry.size()), entry)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check(bytes);
  // After a good header, and as the payload of an entry that is whole.
  auto sealed = seal(wanted(), bytes, Keys());
  check(sealed);
  const std::size_t header = sealed.size() - encode(wanted(), bytes).size();
  sealed.resize(header);
  sealed.insert(sealed.end(), bytes.begin(), bytes.end());
  check(sealed);
  // No signature is believed without keys, whatever it is.
  std::string why;
  if (unseal(wanted(), bytes, Keys(), false, why)) std::abort();
  return 0;
}
