#pragma once

#include <sparsekiln/compile.h>

namespace sparsekiln::bench {

/// Launches a kernel once, on random operands, and compares everything that it computed with float64
/// (oracle/spmm_check.h). `layout` and `options` are those it was compiled from, with a fixed batch. Throws
/// `internal` if an element is wrong: the speed of wrong results means nothing.
void check_kernel(const Layout& layout, const Options& options, const Kernel& kernel);

}  // namespace sparsekiln::bench
