// The index of a pack, and a stored layout: bytes from a file that cannot be trusted.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <sparsekiln/digest.h>
#include <sparsekiln/error.h>

#include "cache/pack_format.h"
#include "runtime/stored_layout.h"

using namespace sparsekiln;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

/// Rows that are read lie within the file, in order, and are what is written of them.
void check(std::span<const std::byte> bytes) {
  std::string wrong;
  const auto rows = cache::read_pack_index(bytes, bytes.size(), wrong);
  if (!wrong.empty()) return require(rows.empty());
  cache::PackEntries entries;
  for (const cache::PackRow& row : rows) {
    require(row.offset <= bytes.size() && row.size <= bytes.size() - row.offset);
    const auto entry =
        bytes.subspan(static_cast<std::size_t>(row.offset), static_cast<std::size_t>(row.size));
    require(entries.emplace(row.key, std::vector<std::byte>(entry.begin(), entry.end())).second);
  }
  std::vector<std::byte> again = cache::encode_pack_index(entries);
  for (const auto& [key, entry] : entries) again.insert(again.end(), entry.begin(), entry.end());
  require(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
}

void check_layout(std::span<const std::byte> bytes) {
  try {
    const Layout layout = deserialize_layout(bytes);
    require(deserialize_layout(serialize_layout(layout)) == layout);
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::cache);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check(bytes);
  check_layout(bytes);

  // With a correct checksum, so that what follows it is reached too: data are count, rows and entries.
  if (size < 1) return 0;
  const std::size_t count = std::min<std::size_t>(data[0] % 8, (size - 1) / 32);
  std::vector<std::byte> sealed = cache::encode_pack_index({});
  sealed[16] = static_cast<std::byte>(count);
  const auto rows = bytes.subspan(1, 32 * count);
  std::vector<std::byte> checked(sealed.begin(), sealed.begin() + 24);
  checked.insert(checked.end(), rows.begin(), rows.end());
  const Digest digest = Digest::of(std::span<const std::byte>(checked));
  const auto checksum = std::as_bytes(std::span(digest.bytes));
  std::copy(checksum.begin(), checksum.end(), sealed.begin() + 24);
  sealed.insert(sealed.end(), bytes.begin() + 1, bytes.end());
  check(sealed);
  return 0;
}
