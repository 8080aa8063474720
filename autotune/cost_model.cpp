#include "autotune/cost_model.h"

#include "autotune/cpu_defaults.h"
#include "autotune/cuda_defaults.h"
#include "compiler/cuda/emit.h"
#include "compiler/cuda/tables.h"

namespace sparsekiln {
namespace {

/// Where the ranges of a dynamic batch end: up to 64 so that a tile is nearly full, above so that the batch
/// tiles of the smallest n of a range, for which it is scheduled, are not far fewer than those of the
/// largest.
constexpr std::int64_t kRangeEnds[] = {8, 16, 32, 64, 256, 1024};

/// The tables of all entries of a module share its constant memory.
void choose_tables(Plan& plan, const Problem& problem, const Target& target) {
  std::int64_t bytes = 0;
  for (const RangedConfig& range : plan)
    bytes += cuda::table_bound(problem, range.config, cuda::chunk_shape(problem, target, range.config),
                               std::int64_t{target.workers} * range.config.split);
  const TableForm form = bytes <= cuda::kConstantTableLimit ? TableForm::constant : TableForm::global;
  for (RangedConfig& range : plan) range.config.table = form;
}

Config default_config(const Problem& problem, const Target& target, std::int64_t n) {
  return target.kind == Target::Kind::cpu ? cpu::default_config(target, n)
                                          : cuda::default_config(problem, target, n);
}

}  // namespace

Plan choose_plan(const Problem& problem, const Target& target) {
  const std::int64_t bound = problem.batch.bound();
  Plan plan;
  if (problem.batch.dynamic()) {
    for (const std::int64_t end : kRangeEnds)
      if (end < bound) plan.push_back({end, default_config(problem, target, end)});
  }
  plan.push_back({bound, default_config(problem, target, bound)});
  if (target.kind == Target::Kind::cuda) choose_tables(plan, problem, target);
  return plan;
}

}  // namespace sparsekiln
