#include "autotune/default_plan.h"

#include <algorithm>
#include <utility>

#include "autotune/backend.h"

namespace sparsekiln {

Plan choose_plan(const Problem& problem, const Target& target) {
  return tuning_of(target).choose_plan(problem, target);
}

Plan choose_attached_plan(const Problem& problem, const Target& target) {
  return tuning_of(target).choose_attached_plan(problem, target);
}

Plan pinned(Config config, const Problem& problem, const Target& target) {
  tuning_of(target).pin(config, problem, target);
  return {{problem.batch.bound(), config}};
}

Plan at_layout(Plan plan, const Problem& problem, const Target& target) {
  const TuningBackend& tuning = tuning_of(target);
  return tuning.at_layout == nullptr ? plan : tuning.at_layout(std::move(plan), problem, target);
}

Binary attach_as_priced(const Layout& layout, const Binary& shared, Cuts cuts) {
  const Problem problem = problem_of(layout, shared.operands, cuts);
  return attach(layout, shared, cuts, at_layout(shared.plan, problem, shared.target));
}

Plan with_attached_tables(Plan plan) {
  for (RangedConfig& range : plan) range.config.table = TableForm::attached;
  return plan;
}

Plan with_baked_tables(Plan plan, const Problem& problem, const Target& target) {
  const bool any = std::any_of(plan.begin(), plan.end(), [](const RangedConfig& range) {
    return range.config.table == TableForm::attached;
  });
  return any ? tuning_of(target).with_baked_tables(std::move(plan), problem, target) : plan;
}

}  // namespace sparsekiln
