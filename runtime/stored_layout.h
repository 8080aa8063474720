#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <sparsekiln/layout.h>

#include "cache/identity.h"

namespace sparsekiln {

// A store also keeps the layouts that it has Binaries for, so that they can be made again, for other
// architectures, from the store alone (`sparsekiln precompile --from-store`).

/// The identity under which a layout of that digest (hexadecimal) is kept.
[[nodiscard]] cache::Identity layout_identity(std::string_view digest);

/// A layout's compact byte form; its grammar stands above the code.
[[nodiscard]] std::vector<std::byte> serialize_layout(const Layout& layout);
/// Reads it back with bounds. Throws Error(cache) on anything off.
[[nodiscard]] Layout deserialize_layout(std::span<const std::byte> bytes);

}  // namespace sparsekiln
