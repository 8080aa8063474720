#pragma once

#include <sparsekiln/binary.h>
#include <sparsekiln/layout.h>

namespace sparsekiln::cuda {

/// `shared`, made for attached tables, with a layout: the contract of its operands, and each entry's workers,
/// workspace and tables. The code, and everything else, is that of `shared`, whatever layout that has
/// already. Pure. Throws `invalid_argument` where the tables are part of the code, or where the layout, in
/// blocks of this size, is one that no kernel takes.
[[nodiscard]] Binary attach(const Layout& layout, const Binary& shared);

}  // namespace sparsekiln::cuda
