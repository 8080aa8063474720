// What comes from the server of a shared level of the cache: bytes from a server that is not trusted.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <unistd.h>

#include "cache/entry.h"
#include "cache/remote.h"

using namespace sparsekiln::cache;

namespace {

const Identity& wanted() {
  static const Identity identity = Identity().add("what", "fuzz");
  return identity;
}

/// Made once, in a folder that goes at once.
const Keys& keys() {
  static const Keys made = [] {
    const auto folder =
        std::filesystem::temp_directory_path() / ("sparsekiln-fuzz-" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder);
    Keys::make(folder / "key");
    Keys read = Keys::read(folder / "key");
    std::filesystem::remove_all(folder);
    return read;
  }();
  return made;
}

/// Believed bytes are exactly those that were sealed.
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
  // A signed entry may still hold anything.
  auto trusted = seal(wanted(), bytes, keys());
  std::string whole;
  if (!unseal(wanted(), trusted, keys(), false, whole)) std::abort();
  if (unseal(Identity().add("what", "else"), trusted, keys(), false, whole)) std::abort();
  // No signature is believed without keys, whatever it is.
  std::string why;
  if (unseal(wanted(), bytes, Keys(), false, why)) std::abort();
  return 0;
}
