#pragma once

#include <string_view>

#include <sparsekiln/layout.h>

#include "compiler/layout_file/sink.h"

namespace sparsekiln::layout_file {

/// Reads lines of 0 and 1, one a block row, all of one length; blanks between them and empty lines at the end
/// do not count. Throws `invalid_argument` naming `name`, the line and what was expected there.
[[nodiscard]] Layout parse_text(std::string_view text, std::string_view name);

/// Throws `invalid_argument` for a grid without cells, which text cannot hold, or one too large (sink.h).
void write_text(const Layout& layout, const Sink& sink);

}  // namespace sparsekiln::layout_file
