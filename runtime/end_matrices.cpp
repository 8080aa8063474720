#include "runtime/end_matrices.h"

#include <cstddef>

#include <fmt/format.h>

#include "runtime/operand_refusal.h"

namespace sparsekiln {
namespace {

bool never(const OperandContract& /*contract*/) { return false; }
bool has_gradient_of_cell(const OperandContract& contract) {
  return has_cell(contract) && is_grad_input(contract);
}

constexpr EndMatrix kEndMatrices[]{
    {"projection", &Operands::projection,
     [](LaunchOperands& launch) -> LaunchMatrix& { return launch.cell.projection; }, RowOf::gates,
     [](const OperandContract& of) { return has_cell(of) && !normalises(of) && is_forward(of); }, never},
    {"c_before", &Operands::c_before,
     [](LaunchOperands& launch) -> LaunchMatrix& { return launch.cell.c_before; }, RowOf::state, has_cell,
     never},
    {"c", &Operands::c, [](LaunchOperands& launch) -> LaunchMatrix& { return launch.cell.c; }, RowOf::state,
     has_cell, is_forward, &Operands::c_before},
    {"activations", &Operands::activations,
     [](LaunchOperands& launch) -> LaunchMatrix& { return launch.cell.activations; }, RowOf::gates,
     [](const OperandContract& of) {
       return has_cell(of) && !normalises(of) && (of.epilogue.keep || is_grad_input(of));
     },
     is_forward},
    {"dc", &Operands::dc, [](LaunchOperands& launch) -> LaunchMatrix& { return launch.cell.dc; },
     RowOf::state, has_gradient_of_cell, never},
    {"dc_before", &Operands::dc_before,
     [](LaunchOperands& launch) -> LaunchMatrix& { return launch.cell.dc_before; }, RowOf::state,
     has_gradient_of_cell, is_grad_input, &Operands::dc},
    {"sums", &Operands::sums,
     [](LaunchOperands& launch) -> LaunchMatrix& { return launch.normalisation.sums; }, RowOf::sums,
     normalises, is_forward},
    {"statistics", &Operands::statistics,
     [](LaunchOperands& launch) -> LaunchMatrix& { return launch.normalisation.statistics; },
     RowOf::statistics, normalises, is_forward},
    {"multiplier", &Operands::multiplier,
     [](LaunchOperands& launch) -> LaunchMatrix& { return launch.normalisation.multiplier; }, RowOf::outputs,
     [](const OperandContract& of) { return of.epilogue.multiply; }, never},
    {"addend", &Operands::addend,
     [](LaunchOperands& launch) -> LaunchMatrix& { return launch.normalisation.addend; }, RowOf::outputs,
     [](const OperandContract& of) { return of.epilogue.add; }, never},
    {"dmultiplier", &Operands::dmultiplier,
     [](LaunchOperands& launch) -> LaunchMatrix& { return launch.normalisation.dmultiplier; }, RowOf::outputs,
     [](const OperandContract& of) { return of.epilogue.multiply && is_grad_input(of) && !has_cell(of); },
     is_grad_input},
    {"daddend", &Operands::daddend,
     [](LaunchOperands& launch) -> LaunchMatrix& { return launch.normalisation.daddend; }, RowOf::outputs,
     [](const OperandContract& of) { return of.epilogue.add && is_grad_input(of); }, is_grad_input}};

}  // namespace

EndMatrices::EndMatrices(const OperandContract& contract) {
  if (!has_cell(contract) && !normalises(contract)) return;
  for (const EndMatrix& matrix : kEndMatrices)
    if (matrix.taken(contract)) matrices_[size_++] = &matrix;
}

std::int64_t features_of_end(const OperandContract& contract) {
  return is_forward(contract) ? contract.out_features / contract.normalised_groups() : contract.in_features;
}

std::int64_t width_of(RowOf row, const OperandContract& contract) {
  switch (row) {
    case RowOf::outputs:
    case RowOf::state:
      return features_of_end(contract);
    case RowOf::gates:
      return 4 * features_of_end(contract);
    case RowOf::sums:
      return contract.normalised_groups() * features_of_end(contract);
    case RowOf::statistics:
      return std::int64_t{2} * contract.normalised_groups();
  }
  return 0;
}

DType type_of(RowOf row, const OperandContract& contract) {
  return row == RowOf::state || row == RowOf::statistics ? contract.sum_type() : contract.out_dtype;
}

void check_epsilon(const Operands& operands, const OperandContract& contract) {
  if (!normalises(contract)) {
    if (operands.epsilon != Operands{}.epsilon)
      refuse("epsilon", "the kernel does not take it; one with epilogue layer_norm does");
    return;
  }
  if (operands.epsilon >= 0) return;
  refuse("epsilon", fmt::format("{} is what is added to a variance; 0 or more would work", operands.epsilon));
}

}  // namespace sparsekiln
