#pragma once

#include <sparsekiln/binary.h>
#include <sparsekiln/problem.h>

namespace sparsekiln::cpu {

/// Each entry's workers, workspace, passes and tables for the layout of `problem`, as sparsekiln::attach
/// fills them in.
void attach_tables(const Problem& problem, Binary& binary);

}  // namespace sparsekiln::cpu
