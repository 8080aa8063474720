#include "compiler/cuda/loop_tuning.h"

#include <algorithm>

#include "compiler/activation.h"

namespace sparsekiln::cuda {

std::int32_t halves(const Target& target, DType dtype) {
  return target.compute_capability() < 80 && dtype != DType::f32 ? 2 : 1;
}

namespace {

/// Instructions for each output: what is read and stored for it, and the arithmetic of the gates.
double cell_costs(const Computation& problem) {
  if (!problem.epilogue.lstm) return 0;
  const double of_sigmoid = row_of(Activation::sigmoid).value_cost;
  const double of_keeping = problem.epilogue.keep ? 10 : 0;
  return problem.operation == Operation::forward ? 72 + 5 * of_sigmoid + of_keeping : 75;
}

}  // namespace

double value_costs(const Computation& problem) {
  const Epilogue& epilogue = problem.epilogue;
  return row_of(epilogue.activation).value_cost + if_it(epilogue.bias, 2) + if_it(epilogue.scale, 5) +
         if_it(epilogue.residual, 5) + if_it(epilogue.glu, 2) + if_it(epilogue.edge_bias, 6) +
         cell_costs(problem);
}

double activation_costs(const Computation& problem) {
  const auto element = static_cast<double>(size_of(problem.dtype));
  return 1.6 * (16.0 / problem.alignment - 1) + 16 / element * row_of(problem.derivative).derivative_cost;
}

double block_scale_costs(const Computation& problem) {
  return if_it(problem.block_scales, 6 * 16 / static_cast<double>(size_of(problem.dtype)));
}

bool has_registers(const Computation& problem, bool cut, const CtaCosts& costs, std::int32_t most) {
  constexpr std::int32_t kMostBesideAddresses = 130;
  const bool queued = !problem.feature_major() && problem.alignment == 16 && !problem.block_scales && !cut &&
                      problem.derivative == Activation::none;
  return costs.registers <= (queued ? most : kMostBesideAddresses);
}

bool has_registers(const Spmm& problem, const Target&, const Config&, const LoopCosts& costs) {
  constexpr std::int32_t kMost = 208;
  return has_registers(problem, problem.cut_in != 0, costs, kMost);
}

void add_lattice_costs(LoopCosts& costs, const Spmm& problem, const LatticeShare& share) {
  if (!problem.gathers()) return;
  const double warps = costs.threads / 32;
  costs.registers = std::min(kMostRegisters, costs.registers + share.registers * share.passes + 8);
  costs.begin += warps * 60 * share.passes;
  costs.chunk += warps * 20;
  costs.load += warps * 8 * share.passes;
  if (problem.correlation->classes.size() > 1) costs.store += warps * 28 * share.rows;
}

}  // namespace sparsekiln::cuda
