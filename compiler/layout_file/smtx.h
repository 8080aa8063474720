#pragma once

#include <string_view>

#include <sparsekiln/layout.h>

#include "compiler/layout_file/sink.h"

namespace sparsekiln::layout_file {

/// Reads the format of the Deep Learning Matrix Collection (Gale, Zaharia, Young & Elsen 2020): a line "rows,
/// columns, non-zeros", a line of row offsets, a line of column indices from 0, ascending within each row.
/// Throws `invalid_argument` naming `name`, the line and what was expected there.
[[nodiscard]] Layout parse_smtx(std::string_view text, std::string_view name);

void write_smtx(const Layout& layout, const Sink& sink);

}  // namespace sparsekiln::layout_file
