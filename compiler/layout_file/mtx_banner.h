#pragma once

#include <string_view>

#include "compiler/layout_file/line_reader.h"

namespace sparsekiln::layout_file {

/// What the first line of a Matrix Market file says.
struct MtxBanner {
  enum class Format { coordinate, array };
  enum class Field { pattern, integer, unsigned_integer, real, complex };
  enum class Symmetry { general, symmetric, skew_symmetric, hermitian };

  Format format = Format::coordinate;
  Field field = Field::pattern;
  Symmetry symmetry = Symmetry::general;
};

/// As the banner spells it.
[[nodiscard]] std::string_view name_of(MtxBanner::Symmetry symmetry);

/// Reads the first line. Throws `invalid_argument` where a word is none of those that are possible there, or
/// where they contradict each other.
[[nodiscard]] MtxBanner read_mtx_banner(LineReader& lines);

}  // namespace sparsekiln::layout_file
