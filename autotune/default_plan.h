#pragma once

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/attach.h"

namespace sparsekiln {

/// The plan for a problem where nothing was measured: on CUDA targets what the cost model gives the least
/// time, on the cpu by rules. No schedule is made. It follows from the problem and the target alone, not from
/// the device at hand, so that what was compiled elsewhere is found. One entry for a fixed batch; for a
/// dynamic batch one per range of n, for each of which some hundred configs are priced. Plans of problems
/// asked for before are kept in memory.
[[nodiscard]] Plan choose_plan(const Problem& problem, const Target& target);

/// The plan of a kernel whose tables are attached: the same for all layouts, whatever their shape, so that
/// they share one Binary. What follows from a layout is left to it. Throws `invalid_argument` for grad_weight
/// on a CUDA target, which bakes its layout.
[[nodiscard]] Plan choose_attached_plan(const Problem& problem, const Target& target);

/// The plan of a config that a caller pins, for a fixed batch: with in_flight put in where it is not given;
/// with attached tables that is left to the layout.
[[nodiscard]] Plan pinned(Config config, const Problem& problem, const Target& target);

/// An attached plan with in_flight and split that suit the problem's layout where they are left to that.
[[nodiscard]] Plan at_layout(Plan plan, const Problem& problem, const Target& target);

/// sparsekiln::attach by at_layout of the plan of `shared`, which the result keeps.
[[nodiscard]] Binary attach_as_priced(const Layout& layout, const Binary& shared, Cuts cuts = {});

/// A plan with the same numbers, and so the same schedules and the same workspace: with attached tables, or
/// with those of its tables that are attached in the form that suits the layout.
[[nodiscard]] Plan with_attached_tables(Plan plan);
[[nodiscard]] Plan with_baked_tables(Plan plan, const Problem& problem, const Target& target);

}  // namespace sparsekiln
