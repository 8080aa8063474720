#include "compiler/recipe.h"

#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/backend.h"
#include "compiler/edge_runs.h"
#include "compiler/plan.h"
#include "compiler/problem_kind.h"
#include "compiler/source.h"

namespace sparsekiln {
namespace {

std::string wrong_entry(const Entry& stored, const Entry& made) {
  if (stored.workers != made.workers)
    return fmt::format("it has {} workers and not {}", stored.workers, made.workers);
  if (stored.workspace != made.workspace) return "its workspace has another size";
  if (stored.resources != made.resources) return "its resources are not those of its code";
  if (stored.arguments != made.arguments) return "its code takes other arguments";
  if (stored.tensor_maps != made.tensor_maps) return "its tensor maps are of other matrices";
  if (stored.tables != made.tables) return "its tables are of another layout";
  return stored == made ? "" : "it is launched in another way";
}

std::string difference(const Binary& stored, const Binary& made) {
  if (stored.target != made.target || stored.plan != made.plan) return "it is of another target or plan";
  if (stored.operands != made.operands) return "its contract is that of another problem";
  if (stored.data != made.data) return "its tables are not those of its schedule";
  if (stored.entries.size() != made.entries.size())
    return fmt::format("it has {} entries and not {}", stored.entries.size(), made.entries.size());
  for (std::size_t i = 0; i < stored.entries.size(); ++i)
    if (const std::string wrong = wrong_entry(stored.entries[i], made.entries[i]); !wrong.empty())
      return fmt::format("its entry {} is not what its schedule makes of it: {}", i, wrong);
  return {};
}

}  // namespace

Binary recipe_of(const Problem& problem, const Target& target, const Plan& plan) {
  Recipe recipe = backend_of(target).recipe_of(computed_by(problem, target), target, plan);
  Binary binary;
  binary.target = target;
  binary.plan = plan;
  binary.operands = contract_of(problem, plan);
  binary.entries = std::move(recipe.entries);
  binary.data = std::move(recipe.data);
  return binary;
}

OperandContract contract_of(const Problem& problem, const Plan& plan) {
  OperandContract operands;
  static_cast<Computation&>(operands) = problem;
  if (!attached(plan)) {  // else the same for all layouts
    operands.in_features = problem.in_features();
    operands.out_features = problem.out_features();
    operands.blocks = problem.weight_blocks(problem.layout.blocks());
  }
  operands.packed = plan.front().config.packed;
  operands.edge_situations = count_edge_situations(problem);
  return operands;
}

void set_resources(Binary& binary) {
  const Backend& backend = backend_of(binary.target);
  for (Entry& entry : binary.entries) entry.resources = backend.resources(binary, entry);
}

std::string wrong_numbers(const Binary& stored, const Problem& problem, const Target& target,
                          const Plan& plan) {
  try {
    Binary made = recipe_of(problem, target, plan);
    made.code = stored.code;
    made.log = stored.log;
    set_resources(made);
    return difference(stored, made);
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace sparsekiln
