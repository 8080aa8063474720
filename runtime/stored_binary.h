#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include <sparsekiln/binary.h>

#include "cache/identity.h"
#include "compiler/stored_binaries.h"

namespace sparsekiln {

// What the entry of a kernel holds (compiler/stored_binaries.h), checked against the entry's identity: the
// same code under another identity would be a wrong kernel.

/// The payload of an entry: `binary`, and those of `others` that another NVRTC has made.
[[nodiscard]] std::vector<std::byte> serialize_binary(const cache::Identity& identity, const Binary& binary,
                                                      std::span<const StoredBinary> others = {});

/// What a payload holds, newest first. Throws Error(cache) on anything off, such as a payload that was made
/// for another identity.
[[nodiscard]] std::vector<StoredBinary> stored_binaries(const cache::Identity& identity,
                                                        std::span<const std::byte> payload);

/// Reads one of them. Throws Error(cache) on anything off, such as a Binary that computes something else than
/// the identity says.
[[nodiscard]] Binary deserialize_binary(const cache::Identity& identity, const StoredBinary& stored);

/// The one that serves the toolchain's driver best and that `serves` accepts; null where none does. One that
/// is damaged, or is of another kernel, hides no other. Adds the versions of NVRTC that the payload holds to
/// `versions`.
[[nodiscard]] std::shared_ptr<const Binary> best_binary(const cache::Identity& identity,
                                                        std::span<const std::byte> payload,
                                                        const Toolchain& toolchain,
                                                        const std::function<bool(const Binary&)>& serves,
                                                        std::set<int>* versions = nullptr);

/// All that a payload holds, newest first. Throws as those do.
[[nodiscard]] std::vector<Binary> deserialize_binaries(const cache::Identity& identity,
                                                       std::span<const std::byte> payload);

}  // namespace sparsekiln
