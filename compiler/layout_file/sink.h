#pragma once

#include <functional>
#include <string_view>

#include <sparsekiln/layout.h>

namespace sparsekiln::layout_file {

/// Takes a file's bytes in order, so that no writer holds a whole file.
using Sink = std::function<void(std::string_view)>;

/// Throws `invalid_argument` where a dense format would need more than 4 GiB for the grid.
void check_dense(const Layout& layout, std::string_view format);

}  // namespace sparsekiln::layout_file
