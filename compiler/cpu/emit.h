#pragma once

#include <vector>

#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/schedule.h"
#include "compiler/source.h"
#include "compiler/spmm.h"

namespace sparsekiln::cpu {

/// Writes the LLVM module (textual IR) for an x86-64 level or "generic". Pure; schedules[i] belongs to
/// plan[i]. For an attached plan there are no schedules, the text does not depend on the layout, and the
/// entries have neither workers nor workspace.
[[nodiscard]] Source emit(const Spmm& problem, const Target& target, const Plan& plan,
                          const std::vector<Schedule>& schedules);

/// The recipe of what `emit` writes, by itself: for a Binary that is there already.
[[nodiscard]] Recipe recipe_of(const Spmm& problem, const Target& target, const Plan& plan,
                               const std::vector<Schedule>& schedules);

/// Throws `invalid_argument` unless `config` can compute `problem` on `target`.
void validate(const Spmm& problem, const Target& target, const Config& config);

}  // namespace sparsekiln::cpu
