#pragma once

#include <optional>
#include <string_view>

namespace sparsekiln::layout_file {

/// What a layout asks of a number.
struct Number {
  int sign = 0;  ///< -1, 0 or 1, however small the number is; a NaN has the sign that it is written with
  bool whole = false;  ///< no fraction and no negative exponent, as in 7, 7.0 and 7e2
};

/// A decimal number in the notation of C or Fortran (1.5e-3, 1.5D-3, 1.5-300), an infinity or a NaN, of any
/// length and size; nothing where `word` is anything else.
[[nodiscard]] std::optional<Number> parse_number(std::string_view word);

}  // namespace sparsekiln::layout_file
