#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sparsekiln::cache {

/// How much a store's folder may hold before it is trimmed.
struct Caps {
  std::uint64_t bytes = std::uint64_t{1} << 30;
  std::uint64_t files = 20'000;

  friend bool operator==(const Caps&, const Caps&) = default;
};

/// Reads "1000", "512K", "512M", "2G" or "1T": a positive number, multiplied by a power of 1024 if a letter
/// follows.
[[nodiscard]] std::optional<std::uint64_t> parse_amount(std::string_view text);

/// Reads the caps that SPARSEKILN_CACHE_MAX_BYTES and SPARSEKILN_CACHE_MAX_FILES set. An invalid value leaves
/// the default, and `complaint` says what was asked, what is wrong and what works; otherwise it is empty.
[[nodiscard]] Caps caps_from_environment(std::string& complaint);

}  // namespace sparsekiln::cache
