#include "tools/layout_patterns.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>
#include <sparsekiln/printable.h>

namespace sparsekiln::tools {
namespace {

using Arguments = PatternArguments;
using Names = std::span<const std::string_view>;

constexpr std::array<std::string_view, 1> kSeed{"seed"};
constexpr std::array<std::string_view, 1> kDensity{"density"};
constexpr std::array<std::string_view, 1> kGroups{"groups"};
constexpr std::array<std::string_view, 1> kHalfWidth{"half-width"};
constexpr std::array<std::string_view, 2> kDensityRewire{"density", "rewire"};
constexpr std::array<std::string_view, 1> kEdges{"edges"};
constexpr std::array<std::string_view, 2> kDiagonalSeed{"diagonal", "seed"};
constexpr std::array<std::string_view, 3> kExtraEdgesDiagonalSeed{"extra-edges", "diagonal", "seed"};
constexpr std::array<std::string_view, 1> kStride{"stride"};
constexpr std::array<std::string_view, 2> kWindowGlobal{"window", "global"};
constexpr std::array<std::string_view, 3> kWindowGlobalRandom{"window", "global", "random"};

std::uint64_t seed_of(const Arguments& a) { return a.seed.value_or(0); }

constexpr std::array kPatterns{
    Pattern{"random", false, kDensity, kSeed,
            [](const Arguments& a) { return patterns::random(*a.rows, *a.cols, *a.density, seed_of(a)); }},
    Pattern{"balanced-random", false, kDensity, kDiagonalSeed,
            [](const Arguments& a) {
              return patterns::balanced_random(*a.rows, *a.cols, *a.density, seed_of(a),
                                               a.diagonal.value_or(false));
            }},
    Pattern{"block-diagonal", false, kGroups, Names{},
            [](const Arguments& a) { return patterns::block_diagonal(*a.rows, *a.cols, *a.groups); }},
    Pattern{"banded", false, kHalfWidth, Names{},
            [](const Arguments& a) { return patterns::banded(*a.rows, *a.cols, *a.half_width); }},
    Pattern{"watts-strogatz", false, kDensityRewire, kDiagonalSeed,
            [](const Arguments& a) {
              return patterns::watts_strogatz(*a.rows, *a.cols, *a.density, *a.rewire, seed_of(a),
                                              a.diagonal.value_or(false));
            }},
    Pattern{"balanced-watts-strogatz", false, kDensityRewire, kDiagonalSeed,
            [](const Arguments& a) {
              return patterns::balanced_watts_strogatz(*a.rows, *a.cols, *a.density, *a.rewire, seed_of(a),
                                                       a.diagonal.value_or(false));
            }},
    Pattern{"barabasi-albert", true, kEdges, kExtraEdgesDiagonalSeed,
            [](const Arguments& a) {
              return patterns::barabasi_albert(*a.size, *a.edges, a.diagonal.value_or(true), seed_of(a),
                                               a.extra_edges.value_or(0));
            }},
    Pattern{"butterfly", true, Names{}, Names{},
            [](const Arguments& a) { return patterns::butterfly(*a.size); }},
    Pattern{"causal", true, Names{}, Names{}, [](const Arguments& a) { return patterns::causal(*a.size); }},
    Pattern{"strided", true, kStride, Names{},
            [](const Arguments& a) { return patterns::strided(*a.size, *a.stride); }},
    Pattern{"longformer", true, kWindowGlobal, Names{},
            [](const Arguments& a) { return patterns::longformer(*a.size, *a.window, *a.global); }},
    Pattern{"bigbird", true, kWindowGlobalRandom, kSeed,
            [](const Arguments& a) {
              return patterns::bigbird(*a.size, *a.window, *a.global, *a.random, seed_of(a));
            }},
};

/// The options that were given, by name; sizes are treated apart.
std::vector<std::string_view> given(const Arguments& a) {
  std::vector<std::string_view> names;
  const auto note = [&](std::string_view name, bool is_there) {
    if (is_there) names.push_back(name);
  };
  note("groups", a.groups.has_value());
  note("half-width", a.half_width.has_value());
  note("edges", a.edges.has_value());
  note("extra-edges", a.extra_edges.has_value());
  note("stride", a.stride.has_value());
  note("window", a.window.has_value());
  note("global", a.global.has_value());
  note("random", a.random.has_value());
  note("density", a.density.has_value());
  note("rewire", a.rewire.has_value());
  note("seed", a.seed.has_value());
  note("diagonal", a.diagonal.has_value());
  return names;
}

bool contains(Names names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// "--size, --edges (and --diagonal, --seed at will)".
std::string usage(const Pattern& pattern) {
  std::string text = pattern.square ? "--size" : "--rows, --cols";
  for (const std::string_view name : pattern.needs) text += fmt::format(", --{}", name);
  if (!pattern.takes.empty()) text += fmt::format(" (and --{} at will)", fmt::join(pattern.takes, ", --"));
  return text;
}

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

/// --size stands for equal --rows and --cols, and the other way round for square patterns.
void settle_size(const Pattern& pattern, Arguments& a) {
  if (a.size && (a.rows || a.cols))
    refuse(
        fmt::format("pattern {}: --size stands for --rows and --cols; give one or the other", pattern.name));
  if (a.size) a.rows = a.cols = a.size;
  if (pattern.square && !a.size && (a.rows || a.cols)) {
    const std::int64_t size = a.rows ? *a.rows : *a.cols;
    if (a.rows && a.cols && *a.rows != *a.cols)
      refuse(fmt::format("pattern {} is square: --rows {} and --cols {} must be equal (or --size)",
                         pattern.name, *a.rows, *a.cols));
    a.size = a.rows = a.cols = size;
  }
  if (!a.rows || !a.cols)
    refuse(fmt::format("pattern {} needs {}: {}", pattern.name,
                       pattern.square ? "--size" : (a.rows ? "--cols" : "--rows"), usage(pattern)));
}

}  // namespace

std::span<const Pattern> known_patterns() { return kPatterns; }

Layout make_pattern(std::string_view name, PatternArguments arguments) {
  const auto* const pattern =
      std::find_if(kPatterns.begin(), kPatterns.end(), [&](const Pattern& row) { return row.name == name; });
  if (pattern == kPatterns.end()) {
    std::string known;
    for (const Pattern& row : kPatterns) known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
    refuse(fmt::format("pattern '{}' is not known: one of {}", printable(name), known));
  }
  settle_size(*pattern, arguments);
  const std::vector<std::string_view> names = given(arguments);
  for (const std::string_view need : pattern->needs)
    if (!contains(names, need)) refuse(fmt::format("pattern {} needs --{}: {}", name, need, usage(*pattern)));
  for (const std::string_view option : names)
    if (option != "seed" && !contains(pattern->needs, option) && !contains(pattern->takes, option))
      refuse(fmt::format("pattern {} takes no --{}: {}", name, option, usage(*pattern)));
  return pattern->make(arguments);
}

}  // namespace sparsekiln::tools
