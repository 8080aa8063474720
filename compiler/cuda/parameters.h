#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/cuda/declarations.h"
#include "compiler/operand_table.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// One parameter of a kernel, after those that all kernels have.
struct Parameter {
  Argument argument;
  std::string_view declaration;  ///< Element: y's; Residual: the residual's; Operand: W's
  std::string member;            ///< of EpilogueArguments in templates/epilogue.cuh
  bool of_product = true;        ///< otherwise no member: what follows the product takes it
};

/// What kernels of a product take besides x, W and y.
[[nodiscard]] std::vector<Parameter> parameters_of(const Spmm& problem);
/// For each operand that such kernels may read, whether they do: has_bias, has_residual, …
[[nodiscard]] Declarations operand_declarations(const Spmm& problem);

}  // namespace sparsekiln::cuda
