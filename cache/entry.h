#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cache/identity.h"

namespace sparsekiln::cache {

/// One file of the store in memory.
struct StoredEntry {
  Identity identity;
  std::vector<std::byte> payload;
};

/// Encodes an entry; the grammar stands above the code.
[[nodiscard]] std::vector<std::byte> encode(const Identity& identity, std::span<const std::byte> payload);

/// Why bytes are not the wanted entry.
enum class Damage {
  none,
  truncated,      ///< shorter than its own header says
  foreign,        ///< not an entry of this store at all
  other_version,  ///< an entry in another format version: it is left alone and not used
  checksum,       ///< the checksum does not match
  malformed,      ///< intact but not what this version writes, or longer than its own header says
  misnamed,       ///< whole, but under the name of another identity
};
/// The enumerator's name, with a space instead of the underscore.
[[nodiscard]] std::string_view name(Damage damage);

/// Reads an entry with bounds; if there is none, `damage` says why.
[[nodiscard]] std::optional<StoredEntry> decode(std::span<const std::byte> bytes, Damage& damage);

/// Reads the identity from the first bytes of an entry, without checking the checksum. `truncated`: more
/// bytes are needed.
[[nodiscard]] std::optional<Identity> decode_identity(std::span<const std::byte> start, Damage& damage);

/// The part of the payload that is in the first bytes of an entry, unchecked; empty if decode_identity cannot
/// read them.
[[nodiscard]] std::span<const std::byte> payload_beginning(std::span<const std::byte> start);

}  // namespace sparsekiln::cache
