#pragma once

#include <string_view>

#include <sparsekiln/layout.h>

#include "compiler/layout_file/sink.h"

namespace sparsekiln::layout_file {

/// Reads a Matrix Market file (Boisvert, Pozo & Remington 1996): `matrix`, `coordinate` or `array`,
/// `pattern`, `integer`, `unsigned-integer`, `real` (also called `double`) or `complex`, `general`,
/// `symmetric`, `skew-symmetric` or `hermitian`. Entries of value zero are absent blocks. An entry that
/// appears again is one block, unless the values could add up to zero. Throws `invalid_argument` naming
/// `name`, the line and what was expected there.
[[nodiscard]] Layout parse_mtx(std::string_view text, std::string_view name);

/// Writes `matrix coordinate pattern general`, row-major.
void write_mtx(const Layout& layout, const Sink& sink);

}  // namespace sparsekiln::layout_file
