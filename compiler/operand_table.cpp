#include "compiler/operand_table.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "compiler/block_scales.h"

namespace sparsekiln {
namespace {

using C = Computation;

/// How a launch passes an operand on: as an argument, or as a matrix of an argument by value.
struct Passed {
  LaunchPlace place;
  std::optional<Argument> argument;

  constexpr Passed(Argument address)  // NOLINT(google-explicit-constructor): rows read well so
      : place{offset_of(address), stride_of(address) ? offset_of(*stride_of(address)) : LaunchPlace::kNone},
        argument(address) {}
  constexpr explicit Passed(LaunchPlace at) : place(at) {}
};
/// The place of a LaunchMatrix.
constexpr Passed within(std::size_t matrix) {
  return Passed(LaunchPlace{static_cast<std::uint16_t>(matrix + offsetof(LaunchMatrix, data)),
                            static_cast<std::uint16_t>(matrix + offsetof(LaunchMatrix, stride))});
}
#define SPARSEKILN_WITHIN(matrix) within(offsetof(LaunchOperands, matrix))

Access read(const C&) { return Access::read; }
Access written(const C&) { return Access::written; }
Access added_to(const C&) { return Access::added_to; }
/// The access to what a gradient reads.
Access written_by_forward(const C& what) { return is_forward(what) ? Access::written : Access::read; }

bool is_product(const C& what) { return !is_grad_weight(what); }
bool has_cell_of_product(const C& what) { return has_cell(what) && is_product(what); }
bool has_gradient_of_cell(const C& what) { return has_cell(what) && is_grad_input(what); }
bool keeps_activations(const C& what) {
  return has_cell(what) && !normalises(what) && (what.epilogue.keep || is_grad_input(what));
}
bool has_edges(const C& what) { return what.epilogue.edge_bias; }
bool has_block_scales(const C& what) { return what.block_scales; }
bool has_block_scale_gradient(const C& what) { return what.block_scale_gradient; }

using View = TensorView Operands::*;
using Taken = bool (*)(const C&);
using AccessOf = Access (*)(const C&);

constexpr OperandRow activation(std::string_view name, View view, OperandType type, Features features,
                                Passed passed, Taken taken, AccessOf access = read, View in_place = nullptr) {
  return {.name = name,
          .view = view,
          .form = OperandForm::activation,
          .type = type,
          .taken = taken,
          .access = access,
          .place = passed.place,
          .argument = passed.argument,
          .features = features,
          .in_place = in_place};
}
constexpr OperandRow weight(std::string_view name, View view, OperandType type, Passed passed, Taken taken,
                            AccessOf access = read) {
  return {.name = name,
          .view = view,
          .form = OperandForm::weight,
          .type = type,
          .taken = taken,
          .access = access,
          .place = passed.place,
          .argument = passed.argument};
}
constexpr OperandRow dense(std::string_view name, View view, OperandType type, Per per, Passed passed,
                           Taken taken, AccessOf access = read, bool multiplies = false) {
  return {.name = name,
          .view = view,
          .form = OperandForm::dense,
          .type = type,
          .taken = taken,
          .access = access,
          .place = passed.place,
          .argument = passed.argument,
          .per = per,
          .multiplies = multiplies};
}
constexpr OperandRow also_called(std::string_view alias, OperandRow row) {
  row.alias = alias;
  return row;
}

constexpr auto kOperand = OperandType::operand;
constexpr auto kResult = OperandType::result;
constexpr auto kSums = OperandType::sums;
using A = Argument;
using F = Features;
using O = Operands;

constexpr std::array kRows{
    activation("x", &O::x, kOperand, F::inputs, A::x, [](const C& what) { return !is_grad_input(what); }),
    activation("dy", &O::dy, kOperand, F::gradients, A::x, [](const C& what) { return !is_forward(what); }),
    weight("w", &O::w, kOperand, A::w,
           [](const C& what) { return is_product(what) || what.block_scale_gradient; }),
    activation("y", &O::y, kResult, F::result, A::y, is_forward, written, &O::residual),
    activation("dx", &O::dx, kResult, F::result, A::y, is_grad_input, written, &O::residual),
    weight("dw", &O::dw, kResult, A::y, is_grad_weight, written),

    // Epilogues, block scales and derivatives
    dense("bias", &O::bias, kResult, Per::feature, A::bias,
          [](const C& what) { return what.epilogue.bias || normalises(what); }),
    weight("v", &O::v, kOperand, A::v, [](const C& what) { return what.epilogue.glu; }),
    dense("v_bias", &O::v_bias, kResult, Per::feature, A::v_bias,
          [](const C& what) { return what.epilogue.bias && what.epilogue.glu; }),
    activation("residual", &O::residual, kResult, F::outputs, A::residual,
               [](const C& what) { return what.epilogue.residual && is_product(what); }),
    dense("edge_gain", &O::edge_gain, kSums, Per::situation, A::edge_gain, has_edges, read, true),
    dense("edge_bias", &O::edge_bias, kSums, Per::situation, A::edge_bias, has_edges),
    dense("row_scale", &O::row_scale, OperandType::f32, Per::block_row, vector_argument(0),
          [](const C& what) { return what.epilogue.row_scale; }),
    dense("v_row_scale", &O::v_row_scale, OperandType::f32, Per::block_row, vector_argument(1),
          [](const C& what) { return what.epilogue.row_scale && what.epilogue.glu; }),
    also_called("gates", dense("block_scales", &O::block_scales, kSums, Per::block, A::block_scales,
                               has_block_scales)),
    activation("z", &O::z, kOperand, F::gradients, A::z,
               [](const C& what) { return what.derivative != Activation::none; }),

    // Layer normalisation and the cell of an LSTM
    dense("gain", &O::gain, kResult, Per::feature,
          Passed(LaunchPlace{offsetof(LaunchOperands, normalisation.gain)}), normalises),
    activation("multiplier", &O::multiplier, kResult, F::outputs, SPARSEKILN_WITHIN(normalisation.multiplier),
               [](const C& what) { return what.epilogue.multiply; }),
    activation("addend", &O::addend, kResult, F::outputs, SPARSEKILN_WITHIN(normalisation.addend),
               [](const C& what) { return what.epilogue.add; }),
    activation("projection", &O::projection, kResult, F::gates, SPARSEKILN_WITHIN(cell.projection),
               [](const C& what) { return has_cell(what) && !normalises(what) && is_forward(what); }),
    activation("c_before", &O::c_before, kSums, F::outputs, SPARSEKILN_WITHIN(cell.c_before),
               has_cell_of_product),
    activation("dc", &O::dc, kSums, F::outputs, SPARSEKILN_WITHIN(cell.dc), has_gradient_of_cell),
    activation("c", &O::c, kSums, F::outputs, SPARSEKILN_WITHIN(cell.c), has_cell_of_product,
               written_by_forward, &O::c_before),
    activation("activations", &O::activations, kResult, F::gates, SPARSEKILN_WITHIN(cell.activations),
               keeps_activations, written_by_forward),
    activation("dc_before", &O::dc_before, kSums, F::outputs, SPARSEKILN_WITHIN(cell.dc_before),
               has_gradient_of_cell, written, &O::dc),
    activation("sums", &O::sums, kResult, F::sums, SPARSEKILN_WITHIN(normalisation.sums), normalises,
               written_by_forward),
    activation("statistics", &O::statistics, kSums, F::statistics,
               SPARSEKILN_WITHIN(normalisation.statistics), normalises, written_by_forward),
    activation(
        "dmultiplier", &O::dmultiplier, kResult, F::outputs, SPARSEKILN_WITHIN(normalisation.dmultiplier),
        [](const C& what) { return what.epilogue.multiply && is_grad_input(what) && !has_cell(what); },
        written),
    activation(
        "daddend", &O::daddend, kResult, F::outputs, SPARSEKILN_WITHIN(normalisation.daddend),
        [](const C& what) { return what.epilogue.add && is_grad_input(what); }, written),
    dense(
        "dnorm", &O::dnorm, kSums, Per::part, SPARSEKILN_WITHIN(normalisation.dnorm),
        [](const C& what) { return normalises(what) && is_grad_input(what); }, added_to),

    // Gradients of the bias and of block scales
    dense(
        "dbias", &O::dbias, kSums, Per::gradient, A::dbias, [](const C& what) { return what.bias_gradient; },
        written),
    also_called("dgates", dense("dblock_scales", &O::dblock_scales, kSums, Per::block, A::dblock_scales,
                                has_block_scale_gradient, written)),
};

#undef SPARSEKILN_WITHIN

/// Whether two rows may be in one place: no operation has both of them.
constexpr bool share_place(const OperandRow& one, const OperandRow& other) {
  return one.argument && one.argument == other.argument &&
         (one.argument == Argument::x || one.argument == Argument::y);
}
constexpr bool are_distinct(std::span<const OperandRow> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (rows[i].is_called(rows[j].name) || rows[j].is_called(rows[i].name) ||
          rows[i].view == rows[j].view ||
          (rows[i].place.address == rows[j].place.address && !share_place(rows[i], rows[j])))
        return false;
  return true;
}
static_assert(are_distinct(kRows), "each operand has a name, a view and a place of its own");

}  // namespace

DType type_of(OperandType type, const Computation& what) {
  switch (type) {
    case OperandType::operand:
      return what.dtype;
    case OperandType::result:
      return what.out_dtype;
    case OperandType::sums:
      return what.sum_type();
    case OperandType::f32:
      return DType::f32;
  }
  throw Error(ErrorKind::internal, "an operand of no type");
}

std::int64_t count(Features features, const OperandContract& contract) {
  const std::int64_t outputs =
      is_forward(contract) ? contract.out_features / contract.normalised_groups() : contract.in_features;
  switch (features) {
    case Features::inputs:
      return contract.in_features;
    case Features::gradients:
      return contract.out_features * contract.gates_of_cell();
    case Features::result:
      return is_forward(contract) ? outputs
                                  : outputs * contract.gates_of_cell() * contract.normalised_groups();
    case Features::outputs:
      return outputs;
    case Features::gates:
      return 4 * outputs;
    case Features::sums:
      return contract.normalised_groups() * outputs;
    case Features::statistics:
      return std::int64_t{2} * contract.normalised_groups();
  }
  throw Error(ErrorKind::internal, "an activation of no features");
}

DenseExtents extents_of(Per per, const OperandContract& contract) {
  const std::int64_t features = count(Features::sums, contract);
  switch (per) {
    case Per::feature:
      return {.extents = {features}};
    case Per::gradient:
      return {.extents = {count(Features::gradients, contract)}};
    case Per::block_row:
      return {.extents = {(features + contract.block.out - 1) / contract.block.out},
              .meaning = ": one for each block row"};
    case Per::block:
      return {.extents = {layout_blocks(contract.convolution, contract.blocks)}};
    case Per::situation:
      return {.extents = {contract.edge_situations, features},
              .rank = 2,
              .meaning = ": a row for each edge situation"};
    case Per::part:
      return {.extents = {1, 2 * features},
              .rank = 2,
              .any_rows = true,
              .meaning = ": a row for each part, of which there is one or more"};
  }
  throw Error(ErrorKind::internal, "an operand of no extents");
}

bool OperandRow::is_main() const {
  return view == &Operands::y || view == &Operands::dx || view == &Operands::dw;
}

std::span<const OperandRow> operand_rows() { return kRows; }

const OperandRow& operand_row(std::string_view name) {
  for (const OperandRow& row : kRows)
    if (row.is_called(name)) return row;
  std::string known;
  for (const OperandRow& row : kRows) known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  throw Error(ErrorKind::invalid_argument,
              fmt::format("there is no operand '{}': {}", printable(name), known));
}

TakenOperands::TakenOperands(const Computation& what) {
  std::size_t activations = 0;
  for (const OperandRow& row : kRows) {
    if (!row.taken(what)) continue;
    if (row.form == OperandForm::activation) ++activations;
    if (size_ == kMost || activations > kMostActivations)
      throw Error(ErrorKind::internal, "a launch of more operands than there are");
    rows_[size_++] = &row;
  }
}

}  // namespace sparsekiln
