#include "compiler/layout_file/number.h"

#include <algorithm>

#include "compiler/layout_file/line_reader.h"

// number   = [sign] (digits ["." [digits]] | "." digits) [exponent]  |  [sign] ("inf" | "infinity" | "nan")
// exponent = ("e" | "d" | "q") [sign] digits                         in any case
//          | sign digits                                             Fortran's, where it has three digits

namespace sparsekiln::layout_file {

namespace {

/// Cuts what `belongs` accepts off the front of `rest`.
template <typename Belongs>
std::string_view take(std::string_view& rest, std::size_t most, Belongs belongs) {
  const std::string_view candidates = rest.substr(0, most);
  const auto* const end = std::find_if_not(candidates.begin(), candidates.end(), belongs);
  const std::string_view taken = rest.substr(0, static_cast<std::size_t>(end - candidates.begin()));
  rest.remove_prefix(taken.size());
  return taken;
}

std::string_view take_one_of(std::string_view& rest, std::string_view choices) {
  return take(rest, 1, [&](char c) { return choices.find(c) != std::string_view::npos; });
}

std::string_view take_digits(std::string_view& rest) {
  return take(rest, std::string_view::npos, [](char c) { return c >= '0' && c <= '9'; });
}

bool zeros(std::string_view digits) { return digits.find_first_not_of('0') == std::string_view::npos; }

}  // namespace

std::optional<Number> parse_number(std::string_view word) {
  const int sign = take_one_of(word, "+-") == "-" ? -1 : 1;
  for (const std::string_view name : {"inf", "infinity", "nan"})
    if (is_in_any_case(word, name)) return Number{sign, false};
  const std::string_view integer = take_digits(word);
  const std::string_view fraction = take_one_of(word, ".").empty() ? std::string_view{} : take_digits(word);
  if (integer.empty() && fraction.empty()) return std::nullopt;
  std::string_view exponent_sign;
  if (!word.empty()) {
    const std::string_view letter = take_one_of(word, "eEdDqQ");
    exponent_sign = take_one_of(word, "+-");
    if ((letter.empty() && exponent_sign.empty()) || take_digits(word).empty() || !word.empty())
      return std::nullopt;
  }
  return Number{zeros(integer) && zeros(fraction) ? 0 : sign, zeros(fraction) && exponent_sign != "-"};
}

}  // namespace sparsekiln::layout_file
