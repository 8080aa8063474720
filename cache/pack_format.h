#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <sparsekiln/digest.h>

namespace sparsekiln::cache {

/// The place of one entry in a pack.
struct PackRow {
  Digest key;  ///< of its identity
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  friend bool operator==(const PackRow&, const PackRow&) = default;
};

/// The entries of a future pack: what `encode` made, by the key of their identity.
using PackEntries = std::map<Digest, std::vector<std::byte>>;

/// A pack's bytes up to its first entry; the grammar stands above the code. Entries follow in the order of
/// their keys.
[[nodiscard]] std::vector<std::byte> encode_pack_index(const PackEntries& entries);

/// The rows of a pack of `pack_size` bytes that starts with `bytes`, in ascending order of keys. The entries
/// are within the file, one after the other; they are not read. If the bytes are not such a pack, there is no
/// row, and `wrong` says why in a few words; otherwise it is empty.
[[nodiscard]] std::vector<PackRow> read_pack_index(std::span<const std::byte> bytes, std::uint64_t pack_size,
                                                   std::string& wrong);

/// Whether bytes start as every version of a pack does.
[[nodiscard]] bool begins_as_pack(std::span<const std::byte> bytes);

}  // namespace sparsekiln::cache
