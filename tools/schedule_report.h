#pragma once

#include "compiler/block_runs.h"
#include "compiler/schedule.h"
#include "tools/answer.h"

namespace sparsekiln::tools {

/// A schedule's figures: steps, balance, loads of x against those of single rows.
[[nodiscard]] Json describe_figures(const Schedule& schedule);

/// The figures, and for each worker its items: the block rows of their places (-1: none), part of how many,
/// and the steps (`[block column, output tile of the item]`).
[[nodiscard]] Json describe_schedule(const Schedule& schedule);
/// The overload for an SDDMM schedule, with the blocks of every run, too.
[[nodiscard]] Json describe_schedule(const BlockRuns& schedule);

}  // namespace sparsekiln::tools
