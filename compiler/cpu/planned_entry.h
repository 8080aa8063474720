#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sparsekiln/binary.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/cpu/layout_data.h"
#include "compiler/cpu/passes.h"
#include "compiler/schedule.h"
#include "compiler/spmm.h"

namespace sparsekiln::cpu {

/// An entry of a product, and what its code is made of.
struct PlannedEntry {
  Entry entry;
  std::string suffix;                ///< of the names of its passes and tables
  std::optional<Geometry> geometry;  ///< null: plain code
  std::vector<Geometry> forms;       ///< attached_forms, of which each layout takes one
  std::optional<LayoutData> data;    ///< null: the layout is attached
};

/// The entries of a plan, before any code is written. schedules[i] belongs to plan[i]; for an attached plan
/// there are none.
[[nodiscard]] std::vector<PlannedEntry> planned_entries(const Spmm& problem, const Target& target,
                                                        const Plan& plan,
                                                        const std::vector<Schedule>& schedules);

}  // namespace sparsekiln::cpu
