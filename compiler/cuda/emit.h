#pragma once

#include <vector>

#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/schedule.h"
#include "compiler/source.h"

namespace sparsekiln::cuda {

/// Writes the CUDA translation unit: a header comment with the problem, named constants, tables, and one
/// instantiation of a template of templates/ per entry of the plan. Pure; schedules[i] belongs to plan[i].
[[nodiscard]] Source emit(const Problem& problem, const Target& target, const Plan& plan,
                          const std::vector<Schedule>& schedules);

/// Throws `invalid_argument` unless `config` can compute `problem` on `target`.
void validate(const Problem& problem, const Target& target, const Config& config);

}  // namespace sparsekiln::cuda
