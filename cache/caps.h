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

/// "1000", "512K", "512M", "2G", "1T": a positive number, with a power of 1024 where there is a letter.
[[nodiscard]] std::optional<std::uint64_t> parse_amount(std::string_view text);

/// The caps that SPARSEKILN_CACHE_MAX_BYTES and SPARSEKILN_CACHE_MAX_FILES set. A value that makes no sense
/// leaves the default, and `complaint` says what was asked, what is wrong and what works; else it is empty.
[[nodiscard]] Caps caps_from_environment(std::string& complaint);

}  // namespace sparsekiln::cache
