#pragma once

#include <sparsekiln/compile.h>

namespace sparsekiln::bench {

/// Launches a kernel once, on random operands, and judges everything that it computed against float64
/// (oracle/spmm_check.h). `layout` and `options` are what it was compiled from, with a batch that is fixed.
/// Throws `internal` where an element is wrong: the speed of wrong results means nothing.
void check_kernel(const Layout& layout, const Options& options, const Kernel& kernel);

}  // namespace sparsekiln::bench
