#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
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
enum class Damage { none, truncated, foreign, other_version, checksum, malformed };
[[nodiscard]] std::string_view name(Damage damage);

/// Reads an entry with bounds; `damage` says why there is none.
[[nodiscard]] std::optional<StoredEntry> decode(std::span<const std::byte> bytes, Damage& damage);

}  // namespace sparsekiln::cache
