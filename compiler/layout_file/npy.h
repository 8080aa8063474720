#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <sparsekiln/layout.h>

#include "compiler/layout_file/sink.h"

namespace sparsekiln::layout_file {

/// Reads a NumPy array file (NEP 1; versions 1.0, 2.0, 3.0): 2-D, bool or integer of any size and byte order,
/// in C or Fortran order. A non-zero element is a present block. Throws `invalid_argument` naming `name`, the
/// byte and what was expected there.
[[nodiscard]] Layout parse_npy(std::span<const std::byte> bytes, std::string_view name);

/// Which elements of an array are not zero, in row-major order of its shape.
struct NonZeros {
  std::vector<std::int64_t> shape;
  std::vector<bool> elements;
};

/// The same files, of any shape.
[[nodiscard]] NonZeros parse_npy_array(std::span<const std::byte> bytes, std::string_view name);

/// Writes version 1.0, `|b1`, C order. Throws `invalid_argument` for a grid that is too large (sink.h).
void write_npy(const Layout& layout, const Sink& sink);

}  // namespace sparsekiln::layout_file
