#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <sparsekiln/layout.h>

namespace sparsekiln::tools {

/// What a pattern may be asked with, as given on the command line.
struct PatternArguments {
  std::optional<std::int64_t> rows, cols, size, groups, half_width, edges, extra_edges, stride, window,
      global, random;
  std::optional<double> density, rewire;
  std::optional<std::uint64_t> seed;
  std::optional<bool> diagonal;
};

/// A pattern as `layout make` knows it.
struct Pattern {
  std::string_view name;
  bool square;                              ///< takes --size; else --rows and --cols
  std::span<const std::string_view> needs;  ///< option names without dashes
  std::span<const std::string_view> takes;  ///< options that have a default
  Layout (*make)(const PatternArguments&);
};
[[nodiscard]] std::span<const Pattern> known_patterns();

/// Makes the layout of a pattern. Throws `invalid_argument` for an unknown name, an option that is missing or
/// one that the pattern does not take, saying which it takes.
[[nodiscard]] Layout make_pattern(std::string_view name, PatternArguments arguments);

}  // namespace sparsekiln::tools
