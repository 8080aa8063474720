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

/// The byte form of an entry; its grammar stands above the code.
[[nodiscard]] std::vector<std::byte> encode(const Identity& identity, std::span<const std::byte> payload);

/// Why bytes are not the wanted entry.
enum class Damage {
  none,
  truncated,      ///< shorter than its own header says
  foreign,        ///< not an entry of this store at all
  other_version,  ///< an entry in another format version: no harm done to it, no use for it
  checksum,       ///< the checksum does not match
  malformed,      ///< intact but not what this version writes, or longer than its own header says
  misnamed,       ///< whole, but under the name of another identity
};
/// The field's name, with a space for the underscore.
[[nodiscard]] std::string_view name(Damage damage);

/// Reads an entry with bounds; `damage` says why there is none.
[[nodiscard]] std::optional<StoredEntry> decode(std::span<const std::byte> bytes, Damage& damage);

/// The identity from the first bytes of an entry, as it stands there: no checksum vouches for it.
/// `truncated`: more bytes are needed.
[[nodiscard]] std::optional<Identity> decode_identity(std::span<const std::byte> start, Damage& damage);

/// What the first bytes of an entry have of its payload, unchecked; nothing where decode_identity reads none.
[[nodiscard]] std::span<const std::byte> payload_beginning(std::span<const std::byte> start);

}  // namespace sparsekiln::cache
