#pragma once

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

namespace sparsekiln {

/// The plan for a problem where nothing was measured, from the layout's statistics alone: no schedule is
/// made. One entry for a fixed batch; for a dynamic batch one per range of n.
[[nodiscard]] Plan choose_plan(const Problem& problem, const Target& target);

}  // namespace sparsekiln
