#pragma once

#include <sparsekiln/threads.h>

namespace sparsekiln {

/// What set_team was given; nullptr where that has not been called, and in a child that was forked since.
[[nodiscard]] Team team();

}  // namespace sparsekiln
