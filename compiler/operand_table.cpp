#include "compiler/operand_table.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "compiler/block_gates.h"

namespace sparsekiln {
namespace {

using C = Computation;

constexpr LaunchPlace place_of(Argument address) {
  const std::optional<Argument> stride = stride_of(address);
  return {offset_of(address), stride ? offset_of(*stride) : LaunchPlace::kNone};
}
/// Of a LaunchMatrix.
constexpr LaunchPlace place_at(std::size_t matrix) {
  return {static_cast<std::uint16_t>(matrix + offsetof(LaunchMatrix, data)),
          static_cast<std::uint16_t>(matrix + offsetof(LaunchMatrix, stride))};
}
#define SPARSEKILN_PLACE(matrix) place_at(offsetof(LaunchOperands, matrix))

Access read(const C&) { return Access::read; }
Access written(const C&) { return Access::written; }
Access added_to(const C&) { return Access::added_to; }
/// Of what the gradient reads.
Access written_by_forward(const C& what) { return is_forward(what) ? Access::written : Access::read; }

bool is_product(const C& what) { return !is_grad_weight(what); }
bool has_cell_of_product(const C& what) { return has_cell(what) && is_product(what); }
bool has_gradient_of_cell(const C& what) { return has_cell(what) && is_grad_input(what); }

constexpr std::array kRows{
    OperandRow{.name = "x",
               .view = &Operands::x,
               .form = OperandForm::activation,
               .type = OperandType::operand,
               .taken = [](const C& what) { return !is_grad_input(what); },
               .access = read,
               .place = place_of(Argument::x),
               .argument = Argument::x,
               .features = Features::inputs},
    OperandRow{.name = "dy",
               .view = &Operands::dy,
               .form = OperandForm::activation,
               .type = OperandType::operand,
               .taken = [](const C& what) { return !is_forward(what); },
               .access = read,
               .place = place_of(Argument::x),
               .argument = Argument::x,
               .features = Features::gradients},
    OperandRow{.name = "w",
               .view = &Operands::w,
               .form = OperandForm::weight,
               .type = OperandType::operand,
               .taken = [](const C& what) { return is_product(what) || what.gate_gradient; },
               .access = read,
               .place = place_of(Argument::w),
               .argument = Argument::w},
    OperandRow{.name = "y",
               .view = &Operands::y,
               .form = OperandForm::activation,
               .type = OperandType::result,
               .taken = [](const C& what) { return is_forward(what); },
               .access = written,
               .place = place_of(Argument::y),
               .argument = Argument::y,
               .features = Features::result,
               .in_place = &Operands::residual},
    OperandRow{.name = "dx",
               .view = &Operands::dx,
               .form = OperandForm::activation,
               .type = OperandType::result,
               .taken = [](const C& what) { return is_grad_input(what); },
               .access = written,
               .place = place_of(Argument::y),
               .argument = Argument::y,
               .features = Features::result,
               .in_place = &Operands::residual},
    OperandRow{.name = "dw",
               .view = &Operands::dw,
               .form = OperandForm::weight,
               .type = OperandType::result,
               .taken = [](const C& what) { return is_grad_weight(what); },
               .access = written,
               .place = place_of(Argument::y),
               .argument = Argument::y},
    OperandRow{.name = "bias",
               .view = &Operands::bias,
               .form = OperandForm::dense,
               .type = OperandType::result,
               .taken = [](const C& what) { return what.epilogue.bias || normalises(what); },
               .access = read,
               .place = place_of(Argument::bias),
               .argument = Argument::bias,
               .per = Per::feature},
    OperandRow{.name = "v",
               .view = &Operands::v,
               .form = OperandForm::weight,
               .type = OperandType::operand,
               .taken = [](const C& what) { return what.epilogue.glu; },
               .access = read,
               .place = place_of(Argument::v),
               .argument = Argument::v},
    OperandRow{.name = "v_bias",
               .view = &Operands::v_bias,
               .form = OperandForm::dense,
               .type = OperandType::result,
               .taken = [](const C& what) { return what.epilogue.bias && what.epilogue.glu; },
               .access = read,
               .place = place_of(Argument::v_bias),
               .argument = Argument::v_bias,
               .per = Per::feature},
    OperandRow{.name = "residual",
               .view = &Operands::residual,
               .form = OperandForm::activation,
               .type = OperandType::result,
               .taken = [](const C& what) { return what.epilogue.residual && is_product(what); },
               .access = read,
               .place = place_of(Argument::residual),
               .argument = Argument::residual,
               .features = Features::outputs},
    OperandRow{.name = "edge_gain",
               .view = &Operands::edge_gain,
               .form = OperandForm::dense,
               .type = OperandType::sums,
               .taken = [](const C& what) { return what.epilogue.edge_bias; },
               .access = read,
               .place = place_of(Argument::edge_gain),
               .argument = Argument::edge_gain,
               .per = Per::situation,
               .values = Values::gains},
    OperandRow{.name = "edge_bias",
               .view = &Operands::edge_bias,
               .form = OperandForm::dense,
               .type = OperandType::sums,
               .taken = [](const C& what) { return what.epilogue.edge_bias; },
               .access = read,
               .place = place_of(Argument::edge_bias),
               .argument = Argument::edge_bias,
               .per = Per::situation},
    OperandRow{.name = "row_scale",
               .view = &Operands::row_scale,
               .form = OperandForm::dense,
               .type = OperandType::f32,
               .taken = [](const C& what) { return what.epilogue.row_scale; },
               .access = read,
               .place = place_of(vector_argument(0)),
               .argument = vector_argument(0),
               .per = Per::block_row,
               .values = Values::scales},
    OperandRow{.name = "v_row_scale",
               .view = &Operands::v_row_scale,
               .form = OperandForm::dense,
               .type = OperandType::f32,
               .taken = [](const C& what) { return what.epilogue.row_scale && what.epilogue.glu; },
               .access = read,
               .place = place_of(vector_argument(1)),
               .argument = vector_argument(1),
               .per = Per::block_row,
               .values = Values::scales},
    OperandRow{.name = "gates",
               .view = &Operands::gates,
               .form = OperandForm::dense,
               .type = OperandType::sums,
               .taken = [](const C& what) { return what.gates; },
               .access = read,
               .place = place_of(Argument::gates),
               .argument = Argument::gates,
               .per = Per::block,
               .values = Values::gates},
    OperandRow{.name = "z",
               .view = &Operands::z,
               .form = OperandForm::activation,
               .type = OperandType::operand,
               .taken = [](const C& what) { return what.derivative != Activation::none; },
               .access = read,
               .place = place_of(Argument::z),
               .argument = Argument::z,
               .features = Features::gradients},
    OperandRow{.name = "gain",
               .view = &Operands::gain,
               .form = OperandForm::dense,
               .type = OperandType::result,
               .taken = normalises,
               .access = read,
               .place = {offsetof(LaunchOperands, normalisation.gain)},
               .per = Per::feature},
    OperandRow{.name = "multiplier",
               .view = &Operands::multiplier,
               .form = OperandForm::activation,
               .type = OperandType::result,
               .taken = [](const C& what) { return what.epilogue.multiply; },
               .access = read,
               .place = SPARSEKILN_PLACE(normalisation.multiplier),
               .features = Features::outputs},
    OperandRow{.name = "addend",
               .view = &Operands::addend,
               .form = OperandForm::activation,
               .type = OperandType::result,
               .taken = [](const C& what) { return what.epilogue.add; },
               .access = read,
               .place = SPARSEKILN_PLACE(normalisation.addend),
               .features = Features::outputs},
    OperandRow{.name = "projection",
               .view = &Operands::projection,
               .form = OperandForm::activation,
               .type = OperandType::result,
               .taken = [](const C& what) { return has_cell(what) && !normalises(what) && is_forward(what); },
               .access = read,
               .place = SPARSEKILN_PLACE(cell.projection),
               .features = Features::gates},
    OperandRow{.name = "c_before",
               .view = &Operands::c_before,
               .form = OperandForm::activation,
               .type = OperandType::sums,
               .taken = has_cell_of_product,
               .access = read,
               .place = SPARSEKILN_PLACE(cell.c_before),
               .features = Features::outputs},
    OperandRow{.name = "dc",
               .view = &Operands::dc,
               .form = OperandForm::activation,
               .type = OperandType::sums,
               .taken = has_gradient_of_cell,
               .access = read,
               .place = SPARSEKILN_PLACE(cell.dc),
               .features = Features::outputs},
    OperandRow{.name = "c",
               .view = &Operands::c,
               .form = OperandForm::activation,
               .type = OperandType::sums,
               .taken = has_cell_of_product,
               .access = written_by_forward,
               .place = SPARSEKILN_PLACE(cell.c),
               .features = Features::outputs,
               .in_place = &Operands::c_before},
    OperandRow{.name = "activations",
               .view = &Operands::activations,
               .form = OperandForm::activation,
               .type = OperandType::result,
               .taken =
                   [](const C& what) {
                     return has_cell(what) && !normalises(what) &&
                            (what.epilogue.keep || is_grad_input(what));
                   },
               .access = written_by_forward,
               .place = SPARSEKILN_PLACE(cell.activations),
               .features = Features::gates},
    OperandRow{.name = "dc_before",
               .view = &Operands::dc_before,
               .form = OperandForm::activation,
               .type = OperandType::sums,
               .taken = has_gradient_of_cell,
               .access = written,
               .place = SPARSEKILN_PLACE(cell.dc_before),
               .features = Features::outputs,
               .in_place = &Operands::dc},
    OperandRow{.name = "sums",
               .view = &Operands::sums,
               .form = OperandForm::activation,
               .type = OperandType::result,
               .taken = normalises,
               .access = written_by_forward,
               .place = SPARSEKILN_PLACE(normalisation.sums),
               .features = Features::sums},
    OperandRow{.name = "statistics",
               .view = &Operands::statistics,
               .form = OperandForm::activation,
               .type = OperandType::sums,
               .taken = normalises,
               .access = written_by_forward,
               .place = SPARSEKILN_PLACE(normalisation.statistics),
               .features = Features::statistics},
    OperandRow{
        .name = "dmultiplier",
        .view = &Operands::dmultiplier,
        .form = OperandForm::activation,
        .type = OperandType::result,
        .taken =
            [](const C& what) { return what.epilogue.multiply && is_grad_input(what) && !has_cell(what); },
        .access = written,
        .place = SPARSEKILN_PLACE(normalisation.dmultiplier),
        .features = Features::outputs},
    OperandRow{.name = "daddend",
               .view = &Operands::daddend,
               .form = OperandForm::activation,
               .type = OperandType::result,
               .taken = [](const C& what) { return what.epilogue.add && is_grad_input(what); },
               .access = written,
               .place = SPARSEKILN_PLACE(normalisation.daddend),
               .features = Features::outputs},
    OperandRow{.name = "dnorm",
               .view = &Operands::dnorm,
               .form = OperandForm::dense,
               .type = OperandType::sums,
               .taken = [](const C& what) { return normalises(what) && is_grad_input(what); },
               .access = added_to,
               .place = SPARSEKILN_PLACE(normalisation.dnorm),
               .per = Per::part},
    OperandRow{.name = "dbias",
               .view = &Operands::dbias,
               .form = OperandForm::dense,
               .type = OperandType::sums,
               .taken = [](const C& what) { return what.bias_gradient; },
               .access = written,
               .place = place_of(Argument::dbias),
               .argument = Argument::dbias,
               .per = Per::gradient},
    OperandRow{.name = "dgates",
               .view = &Operands::dgates,
               .form = OperandForm::dense,
               .type = OperandType::sums,
               .taken = [](const C& what) { return what.gate_gradient; },
               .access = written,
               .place = place_of(Argument::dgates),
               .argument = Argument::dgates,
               .per = Per::block},
};

#undef SPARSEKILN_PLACE

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
    if (row.name == name) return row;
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
