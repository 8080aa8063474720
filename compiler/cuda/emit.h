#pragma once

#include <vector>

#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/tables.h"
#include "compiler/schedule.h"
#include "compiler/source.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// Writes the CUDA translation unit: a header comment with the problem, named constants, tables, and one
/// instantiation of a template of templates/ per entry of the plan. Pure; schedules[i] belongs to plan[i].
/// For an attached plan there are no schedules, the text does not depend on the layout, and the entries have
/// neither workers nor workspace.
[[nodiscard]] Source emit(const Spmm& problem, const Target& target, const Plan& plan,
                          const std::vector<Schedule>& schedules);

/// The recipe of what `emit` writes, by itself: for a Binary that is there already.
[[nodiscard]] Recipe recipe_of(const Spmm& problem, const Target& target, const Plan& plan,
                               const std::vector<Schedule>& schedules);

/// The workspace of one entry with so many threads in a CTA. `counters_in_front`: counter_bytes of the plan.
[[nodiscard]] Workspace workspace_of(const Spmm& problem, const Config& config, std::int32_t threads,
                                     const Schedule& schedule, std::int64_t counters_in_front);

/// Entry::tensor_maps of the kernel of a config.
[[nodiscard]] std::vector<TensorMap> tensor_maps_of(const Spmm& problem, const Target& target,
                                                    const Config& config);
/// Entry::tiles_in_flight of a config.
[[nodiscard]] std::int32_t tiles_in_flight(const Config& config);

/// The chunks that the kernel of a config goes through.
[[nodiscard]] ChunkShape chunk_shape(const Spmm& problem, const Target& target, const Config& config);

/// Throws `invalid_argument`, with the problem's own reason and what would work, where no config computes it
/// on `target`.
void validate(const Spmm& problem, const Target& target);
/// The same, and unless `config` can compute it.
void validate(const Spmm& problem, const Target& target, const Config& config);

}  // namespace sparsekiln::cuda
