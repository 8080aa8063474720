#include "cache/caps.h"

#include <charconv>
#include <cstdlib>
#include <limits>

#include <fmt/format.h>
#include <sparsekiln/printable.h>

namespace sparsekiln::cache {

namespace {

void take(const char* variable, std::uint64_t& cap, std::string& complaint) {
  const char* const value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return;
  if (const auto amount = parse_amount(value)) {
    cap = *amount;
    return;
  }
  complaint +=
      fmt::format("{}{} is '{}', not a positive number such as 20000, 512M or 2G; the cap stays at {}",
                  complaint.empty() ? "" : "; ", variable, printable(value), cap);
}

}  // namespace

std::optional<std::uint64_t> parse_amount(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number == 0) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (unit.empty()) return number;
  const std::size_t power =
      unit.size() == 1 ? std::string_view("KMGT").find(unit[0]) : std::string_view::npos;
  if (power == std::string_view::npos) return std::nullopt;
  const std::size_t shift = 10 * (power + 1);
  if (number > std::numeric_limits<std::uint64_t>::max() >> shift) return std::nullopt;
  return number << shift;
}

Caps caps_from_environment(std::string& complaint) {
  Caps caps;
  complaint.clear();
  take("SPARSEKILN_CACHE_MAX_BYTES", caps.bytes, complaint);
  take("SPARSEKILN_CACHE_MAX_FILES", caps.files, complaint);
  return caps;
}

}  // namespace sparsekiln::cache
