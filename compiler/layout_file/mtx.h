#pragma once

#include <string_view>

#include <sparsekiln/layout.h>

#include "compiler/layout_file/sink.h"

namespace sparsekiln::layout_file {

/// Reads a Matrix Market file (Boisvert, Pozo & Remington 1996): `matrix coordinate`, `pattern`, `integer` or
/// `real`, `general` or `symmetric`. Entries of value zero are absent blocks. Throws `invalid_argument`
/// naming `name`, the line and what was expected there.
[[nodiscard]] Layout parse_mtx(std::string_view text, std::string_view name);

/// Writes `matrix coordinate pattern general`, row-major.
void write_mtx(const Layout& layout, const Sink& sink);

}  // namespace sparsekiln::layout_file
