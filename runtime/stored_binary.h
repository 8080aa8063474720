#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sparsekiln/binary.h>

#include "cache/identity.h"

namespace sparsekiln {

/// The payload of the entry that holds a Binary under an identity; its grammar stands above the code. It says
/// which entry it was made for: the same code under another identity would be a wrong kernel.
[[nodiscard]] std::vector<std::byte> serialize_binary(const cache::Identity& identity, const Binary& binary);

/// Reads it back with bounds. Throws Error(cache) on anything off, such as a payload that was made for
/// another identity, or a Binary that computes something else than the identity says.
[[nodiscard]] Binary deserialize_binary(const cache::Identity& identity, std::span<const std::byte> payload);

}  // namespace sparsekiln
