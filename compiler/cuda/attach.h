#pragma once

#include <sparsekiln/binary.h>
#include <sparsekiln/problem.h>

namespace sparsekiln::cuda {

/// Each entry's workers, workspace, batch tiles in flight and tables for the layout of `problem`, as
/// sparsekiln::attach fills them in.
void attach_tables(const Problem& problem, const Plan& plan, Binary& binary);

}  // namespace sparsekiln::cuda
