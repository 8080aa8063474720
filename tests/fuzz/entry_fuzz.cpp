// Files in the store's folder, entries and others: bytes from a disk that cannot be trusted.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include <sparsekiln/binary.h>
#include <sparsekiln/digest.h>
#include <sparsekiln/error.h>

#include "cache/entry.h"
#include "cache/failure.h"
#include "cache/identity.h"
#include "cache/lock.h"
#include "cache/totals.h"
#include "compiler/stored_binaries.h"

using sparsekiln::Digest;
using sparsekiln::cache::Damage;
using sparsekiln::cache::decode;
using sparsekiln::cache::decode_failure;
using sparsekiln::cache::decode_identity;
using sparsekiln::cache::encode;
using sparsekiln::cache::Holder;
using sparsekiln::cache::Identity;
using sparsekiln::cache::sum_totals;

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

/// An identity at the head must be the one of the whole, where there is a whole.
void check_head(std::span<const std::byte> bytes) {
  Damage of_head = Damage::none, of_whole = Damage::none;
  const auto head = decode_identity(bytes, of_head);
  const auto whole = decode(bytes, of_whole);
  if (whole && (!head || !(*head == whole->identity))) std::abort();
}

/// What reads must be what was written, for each of the smaller formats; a payload is Binaries or an error,
/// and so is each of them.
void check_others(std::span<const std::byte> bytes, std::string_view text) {
  if (const auto failure = decode_failure(bytes)) {
    const auto again = encode(*failure);
    if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) std::abort();
  }
  if (const auto holder = Holder::parse(text); holder && !Holder::parse(holder->text())) std::abort();
  static_cast<void>(sum_totals(text));
  try {
    static_cast<void>(sparsekiln::deserialize(bytes));
  } catch (const sparsekiln::Error&) {
  }
  static_cast<void>(sparsekiln::stored_versions(bytes));
  try {
    static_cast<void>(sparsekiln::deserialize_all(bytes));
  } catch (const sparsekiln::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check(bytes);
  check_head(bytes);

  // With a correct checksum, so that what follows it is reached too.
  const Digest digest = Digest::of(bytes);
  const auto checksum = std::as_bytes(std::span(digest.bytes));
  std::vector<std::byte> sealed(bytes.begin(), bytes.end());
  sealed.insert(sealed.end(), checksum.begin(), checksum.end());
  check(sealed);
  check_head(sealed);

  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto identity = Identity::from_canonical(text); identity && identity->canonical() != text)
    std::abort();
  check_others(bytes, text);
  return 0;
}
