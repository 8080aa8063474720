#pragma once

#include <string>

#include <sparsekiln/compile.h>
#include <sparsekiln/layout.h>
#include <sparsekiln/problem.h>

#include "runtime/test_launch.h"

namespace sparsekiln::test {

/// The first failure of two launches: the second finds counters and the workspace as the first one left them.
/// Both are to give the same bits. Empty where they are right.
[[nodiscard]] std::string failure_of_two(const Kernel& kernel, const Problem& problem,
                                         const TestLaunchShape& shape, Inputs inputs);
[[nodiscard]] std::string failure_of_two(const Layout& layout, const Options& options,
                                         const TestLaunchShape& shape,
                                         Inputs inputs = Inputs::small_integers);

}  // namespace sparsekiln::test
