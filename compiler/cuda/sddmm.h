#pragma once

#include <vector>

#include <sparsekiln/binary.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/block_runs.h"
#include "compiler/sddmm.h"
#include "compiler/source.h"

namespace sparsekiln::cuda {

/// As cuda::emit of products: the translation unit of a gradient of the weight. schedules[i] belongs to
/// plan[i]; for an attached plan there are none.
[[nodiscard]] Source emit(const Sddmm& gradient, const Target& target, const Plan& plan,
                          const std::vector<BlockRuns>& schedules);

/// The recipe of what `emit` writes, by itself: for a Binary that is there already.
[[nodiscard]] Recipe recipe_of(const Sddmm& gradient, const Target& target, const Plan& plan,
                               const std::vector<BlockRuns>& schedules);

/// Throws `invalid_argument`, with the problem's own reason and what would work, where no config computes it
/// on `target`.
void validate(const Sddmm& gradient, const Target& target);
/// The same, and unless `config` can compute it.
void validate(const Sddmm& gradient, const Target& target, const Config& config);

/// Fills in what entries have of a layout: workers, workspace, tensor maps and tables.
void attach_runs(const Sddmm& gradient, const Plan& plan, const std::vector<BlockRuns>& schedules,
                 Binary& binary);

}  // namespace sparsekiln::cuda
