#include "compiler/layout_file/mtx_banner.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include <fmt/format.h>

#include "compiler/layout_file/refusal.h"

// banner = "%%MatrixMarket" "matrix" format field symmetry        in any case; "%MatrixMarket" is found as
// well

namespace sparsekiln::layout_file {

namespace {

using Format = MtxBanner::Format;
using Field = MtxBanner::Field;
using Symmetry = MtxBanner::Symmetry;

template <typename Value>
struct Choice {
  std::string_view name;
  Value value;
};

constexpr std::array<Choice<Format>, 2> kFormats{{
    {"coordinate", Format::coordinate},
    {"array", Format::array},
}};
constexpr std::array<Choice<Field>, 6> kFields{{
    {"pattern", Field::pattern},
    {"integer", Field::integer},
    {"unsigned-integer", Field::unsigned_integer},
    {"real", Field::real},
    {"double", Field::real},
    {"complex", Field::complex},
}};
constexpr std::array<Choice<Symmetry>, 4> kSymmetries{{
    {"general", Symmetry::general},
    {"symmetric", Symmetry::symmetric},
    {"skew-symmetric", Symmetry::skew_symmetric},
    {"hermitian", Symmetry::hermitian},
}};

[[noreturn]] void refuse_word(const LineReader& lines, std::string_view what, std::string_view word,
                              std::string_view expected) {
  lines.refuse(
      fmt::format("the {} is {}; expected {}", what, word.empty() ? "missing" : quoted(word), expected));
}

template <typename Value, std::size_t count>
Value read_choice(const LineReader& lines, std::string_view& rest, std::string_view what,
                  const std::array<Choice<Value>, count>& choices) {
  const std::string_view word = next_word(rest);
  std::string names;
  for (const auto& [name, value] : choices) {
    if (is_in_any_case(word, name)) return value;
    names.append(names.empty() ? "" : " or ").append(name);
  }
  refuse_word(lines, what, word, names);
}

}  // namespace

std::string_view name_of(Symmetry symmetry) {
  return std::ranges::find(kSymmetries, symmetry, &Choice<Symmetry>::value)->name;
}

MtxBanner read_mtx_banner(LineReader& lines) {
  std::string_view rest = lines.next().value_or("");
  if (const auto word = next_word(rest);
      !is_in_any_case(word, "%%matrixmarket") && !is_in_any_case(word, "%matrixmarket"))
    refuse_word(lines, "banner's first word", word, "%%MatrixMarket");
  if (const auto word = next_word(rest); !is_in_any_case(word, "matrix"))
    refuse_word(lines, "object", word, "matrix");
  MtxBanner banner;
  banner.format = read_choice(lines, rest, "format", kFormats);
  banner.field = read_choice(lines, rest, "field", kFields);
  banner.symmetry = read_choice(lines, rest, "symmetry", kSymmetries);
  expect_end(lines, rest, "the banner");
  if (banner.format == Format::array && banner.field == Field::pattern)
    lines.refuse("an array has a value for each block, and a pattern has none; coordinate would work");
  if (banner.field == Field::unsigned_integer && banner.symmetry == Symmetry::skew_symmetric)
    lines.refuse("a skew-symmetric matrix has values of both signs; integer would work");
  return banner;
}

}  // namespace sparsekiln::layout_file
