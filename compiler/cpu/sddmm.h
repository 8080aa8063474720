#pragma once

#include <vector>

#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/block_runs.h"
#include "compiler/sddmm.h"
#include "compiler/source.h"

namespace sparsekiln::cpu {

/// As cpu::emit of products: the LLVM module of a gradient of the weight. schedules[i] belongs to plan[i]. A
/// pass is called with batch_tile 0 alone (Entry::tile_n is 0) and once for each worker of the schedule; of
/// its Call, y is dw, and x, dy and z are in `pairs`. With n = 0 it is called too: dw is zeros, or beta · dw.
[[nodiscard]] Source emit(const Sddmm& gradient, const Target& target, const Plan& plan,
                          const std::vector<BlockRuns>& schedules);

/// The recipe of what `emit` writes, by itself: for a Binary that is there already.
[[nodiscard]] Recipe recipe_of(const Sddmm& gradient, const Target& target, const Plan& plan,
                               const std::vector<BlockRuns>& schedules);

/// Throws `invalid_argument` unless `config` can compute `gradient` on `target`.
void validate(const Sddmm& gradient, const Target& target, const Config& config);

}  // namespace sparsekiln::cpu
