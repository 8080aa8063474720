#pragma once

#include <cstdint>
#include <string>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/schedule.h"

namespace sparsekiln::tools {

/// CTAs of a launch over those that the target is planned to hold at once, rounded up; 0: nothing to launch.
[[nodiscard]] std::int64_t waves(const Schedule& schedule, const Target& target, const Config& config,
                                 std::int64_t n);

/// A schedule for people: what it saves and costs; a bar for each worker; and, of a grid of up to 64 × 64
/// blocks, the blocks in the order of their places, each with the symbol of the worker that computes it. A
/// line between rows ends a row group.
[[nodiscard]] std::string draw_schedule(const Problem& problem, const Schedule& schedule,
                                        const Target& target, const Config& config, std::int64_t n);

}  // namespace sparsekiln::tools
