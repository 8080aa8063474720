#pragma once

#include <sparsekiln/binary.h>
#include <sparsekiln/problem.h>

namespace sparsekiln::cuda {

/// Each entry's workers, workspace and tables for the layout of `problem`, as sparsekiln::attach fills them
/// in.
void attach_tables(const Problem& problem, Binary& binary);

}  // namespace sparsekiln::cuda
