#pragma once

#include "compiler/schedule.h"
#include "tools/command.h"

namespace sparsekiln::tools {

/// A schedule for people and scripts: its balance, and for each worker its items with their block coordinates
/// (`[block row, part, parts, [block column …]]`).
[[nodiscard]] Json describe_schedule(const Schedule& schedule);

}  // namespace sparsekiln::tools
