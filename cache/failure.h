#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sparsekiln/error.h>

#include "cache/file.h"

namespace sparsekiln::cache {

/// A compile that failed. It is kept under the key of the entry that it would have made, so that not every
/// process of a cluster fails in the same way again.
struct Failure {
  std::string message;
  std::string log;
  std::string source;
  std::string toolchain;  ///< name and version of the compiler that refused it; another one may accept it
  Stamp made;             ///< in whole seconds
};

/// How long a failure is remembered.
inline constexpr std::chrono::hours kFailureAge{1};

/// The payload of a failed entry; its grammar stands above the code.
[[nodiscard]] std::vector<std::byte> encode(const Failure& failure);
/// The inverse of encode(): empty unless the bytes are exactly what encode() writes.
[[nodiscard]] std::optional<Failure> decode_failure(std::span<const std::byte> payload);

/// Whether the failure is still valid for this compiler. A failure with a time in the future counts as too
/// old.
[[nodiscard]] bool holds(const Failure& failure, std::string_view toolchain, Stamp now);

/// The error to be thrown instead of another compile: the first one's message, log and source, and that it is
/// remembered and how to try again. `folder` is the store's.
[[nodiscard]] Error remembered(const Failure& failure, Stamp now, const std::filesystem::path& folder);

}  // namespace sparsekiln::cache
