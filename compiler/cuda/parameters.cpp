#include "compiler/cuda/parameters.h"

#include <optional>

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln::cuda {
namespace {

/// How a kernel declares what an operand points at.
std::string_view pointed_at(const OperandRow& row) {
  switch (row.type) {
    case OperandType::operand:
      return "const Operand*";
    case OperandType::result:
      return row.form == OperandForm::activation ? "const Residual*" : "const Element*";
    case OperandType::sums:
    case OperandType::f32:
      return "const float*";
  }
  throw Error(ErrorKind::internal, "an operand of no type");
}

/// Whether kernels may read an operand besides x and W.
bool is_read_besides(const OperandRow& row, const Spmm& problem) {
  return row.argument && row.argument != Argument::x && row.argument != Argument::w && !row.computed(problem);
}

/// Whether a kernel takes such an operand. The second weight follows the first one, whatever the epilogue is.
bool is_parameter(const OperandRow& row, const Spmm& problem) {
  if (row.view == &Operands::v) return problem.weights() > 1;
  return is_read_besides(row, problem) && row.taken(problem);
}

}  // namespace

std::vector<Parameter> parameters_of(const Spmm& problem) {
  std::vector<Parameter> parameters;
  if (problem.epilogue.scale)
    parameters.insert(parameters.end(),
                      {{Argument::alpha, "float", "alpha"}, {Argument::beta, "float", "beta"}});
  for (const OperandRow& row : operand_rows()) {
    if (!is_parameter(row, problem)) continue;
    parameters.push_back({*row.argument, pointed_at(row), std::string(row.name)});
    if (const std::optional<Argument> stride = stride_of(*row.argument))
      parameters.push_back({*stride, "long long", fmt::format("{}_stride", row.name)});
  }
  if (problem.epilogue.lstm) parameters.push_back({Argument::cell, "const sparsekiln::CellMatrices", "cell"});
  if (problem.normalisation) {
    parameters.push_back(
        {Argument::normalisation, "const sparsekiln::NormalisationMatrices", "normalisation", false});
    if (problem.normalisation->lstm)
      parameters.push_back({Argument::cell, "const sparsekiln::CellMatrices", "cell", false});
  }
  if (problem.convolution.dynamic)
    parameters.push_back({Argument::images, "const sparsekiln::ImageExtents", "images"});
  return parameters;
}

Declarations operand_declarations(const Spmm& problem) {
  Declarations members;
  for (const OperandRow& row : operand_rows())
    if (is_read_besides(row, problem))
      members.flag(fmt::format("has_{}", row.name), is_parameter(row, problem));
  return members;
}

}  // namespace sparsekiln::cuda
