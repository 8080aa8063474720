#include "autotune/default_plan.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "autotune/cpu_defaults.h"
#include "autotune/cuda_defaults.h"
#include "compiler/cuda/emit.h"
#include "compiler/cuda/sddmm.h"
#include "compiler/cuda/tables.h"
#include "compiler/cuda/types.h"
#include "compiler/problem_kind.h"

namespace sparsekiln {
namespace {

/// Where the ranges of a dynamic batch end: up to 64 so that a tile is nearly full, above so that the batch
/// tiles of the smallest n of a range, for which it is scheduled, are not far fewer than those of the
/// largest.
constexpr std::int64_t kRangeEnds[] = {8, 16, 32, 64, 256, 1024};

/// The tables of all entries of a module share its constant memory.
void choose_tables(Plan& plan, const Spmm& problem, const Target& target) {
  std::int64_t bytes = 0;
  for (const RangedConfig& range : plan)
    bytes += cuda::table_bound(problem, range.config, cuda::chunk_shape(problem, target, range.config),
                               std::int64_t{target.workers} * range.config.split);
  const TableForm form = bytes <= cuda::kConstantTableLimit ? TableForm::constant : TableForm::global;
  for (RangedConfig& range : plan) range.config.table = form;
}

Config default_config(const Spmm& problem, const Target& target, std::int64_t n) {
  return target.kind == Target::Kind::cpu ? cpu::default_config(problem, target, n)
                                          : cuda::default_config(problem, target, n);
}

/// The default plan, except for the form of its tables.
Plan choose_numbers(const Spmm& problem, const Target& target) {
  const std::int64_t bound = problem.batch.bound();
  Plan plan;
  if (problem.batch.dynamic()) {
    for (const std::int64_t end : kRangeEnds)
      if (end < bound) plan.push_back({end, default_config(problem, target, end)});
  }
  plan.push_back({bound, default_config(problem, target, bound)});
  return plan;
}

/// As few ranges as there are configs.
Plan choose_cpu_plan(const Sddmm& gradient, const Target& target) {
  const std::int64_t bound = gradient.batch.bound();
  std::vector<std::int64_t> ends = {bound};
  if (gradient.batch.dynamic())
    for (const std::int64_t end : kRangeEnds)
      if (end < bound) ends.insert(ends.end() - 1, end);
  Plan plan;
  for (const std::int64_t end : ends) {
    const Config config = cpu::default_config(gradient, target, end);
    if (plan.empty() || plan.back().config != config)
      plan.push_back({end, config});
    else
      plan.back().up_to = end;
  }
  return plan;
}

/// One kernel for every n on a GPU: whatever n is, a block is summed in one go.
Plan choose_plan(const Sddmm& gradient, const Target& target) {
  const std::int64_t bound = gradient.batch.bound();
  if (target.kind == Target::Kind::cpu) return choose_cpu_plan(gradient, target);
  Config config = cuda::default_config(gradient, target, bound);
  config.table = cuda::table_bound(gradient, config) <= cuda::kConstantTableLimit ? TableForm::constant
                                                                                  : TableForm::global;
  return {{bound, config}};
}

Plan choose_plan(const Spmm& problem, const Target& target) {
  Plan plan = choose_numbers(problem, target);
  if (target.kind == Target::Kind::cuda) choose_tables(plan, problem, target);
  return plan;
}

[[noreturn]] void refuse_attached(Operation operation) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("attached tables of {}: its layout is baked; leave `attached` and `tiered` out",
                          name(operation)));
}

/// For any layout: `problem` has an empty one.
Plan choose_attached_numbers(const Spmm& problem, const Target& target) {
  return choose_numbers(problem, target);
}

Plan choose_attached_numbers(const Sddmm& gradient, const Target& target) {
  if (target.kind == Target::Kind::cuda) refuse_attached(gradient.operation);
  return choose_cpu_plan(gradient, target);
}

/// The form that suits the layout, where all tables were attached.
void choose_baked_tables(Plan& plan, const Spmm& problem, const Target& target) {
  choose_tables(plan, problem, target);
}

[[noreturn]] void choose_baked_tables(Plan&, const Sddmm& gradient, const Target&) {
  refuse_attached(gradient.operation);
}

}  // namespace

Plan choose_plan(const Problem& problem, const Target& target) {
  if (target.kind == Target::Kind::cuda) cuda::require_types(problem, target);
  return std::visit([&](const auto& computed) { return choose_plan(computed, target); },
                    computed_by(problem));
}

Plan choose_attached_plan(const Problem& problem, const Target& target) {
  if (target.kind == Target::Kind::cuda) cuda::require_types(problem, target);
  Problem any = problem;
  any.layout = Layout();
  return with_attached_tables(std::visit(
      [&](const auto& computed) { return choose_attached_numbers(computed, target); }, computed_by(any)));
}

Plan with_attached_tables(Plan plan) {
  for (RangedConfig& range : plan) range.config.table = TableForm::attached;
  return plan;
}

Plan with_baked_tables(Plan plan, const Problem& problem, const Target& target) {
  const bool any = std::any_of(plan.begin(), plan.end(), [](const RangedConfig& range) {
    return range.config.table == TableForm::attached;
  });
  if (any)
    std::visit([&](const auto& computed) { choose_baked_tables(plan, computed, target); },
               computed_by(problem));
  return plan;
}

}  // namespace sparsekiln
