#include "compiler/attach.h"

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/backend.h"
#include "compiler/plan.h"

namespace sparsekiln {
Problem problem_of(const Layout& layout, const OperandContract& operands, Cuts cuts) {
  Problem problem;
  static_cast<Computation&>(problem) = operands;
  problem.layout = layout;
  problem.cut_in_features = cuts.in_features;
  problem.cut_out_features = cuts.out_features;
  return problem;
}

Binary attach(const Layout& layout, const Binary& shared, Cuts cuts, const Plan& plan) {
  if (!attached(shared.plan))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("a layout for plan '{}': it is part of the code; table=attached would work",
                            to_string(shared.plan)));
  if (shared.entries.size() != shared.plan.size())
    throw Error(ErrorKind::internal, fmt::format("a plan of {} ranges came with {} entries",
                                                 shared.plan.size(), shared.entries.size()));
  if (!plan.empty() && plan.size() != shared.plan.size())
    throw Error(ErrorKind::internal, fmt::format("a plan of {} ranges to attach by, for one of {}",
                                                 plan.size(), shared.plan.size()));
  const Problem problem = problem_of(layout, shared.operands, cuts);
  validate(problem);
  Binary binary = shared;
  binary.operands.in_features = problem.in_features();
  binary.operands.out_features = problem.out_features();
  binary.operands.blocks = problem.weight_blocks(layout.blocks());
  backend_of(binary.target).attach_tables(problem, plan.empty() ? shared.plan : plan, binary);
  return binary;
}

}  // namespace sparsekiln
