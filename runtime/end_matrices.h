#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <sparsekiln/binary.h>
#include <sparsekiln/operands.h>

#include "compiler/launch_operands.h"

namespace sparsekiln {

// The matrices that the end of a product takes, besides x, y and the residual: those of an LSTM's cell, and
// of layer normalisation.

[[nodiscard]] inline bool is_forward(const OperandContract& contract) {
  return contract.operation == Operation::forward;
}
[[nodiscard]] inline bool is_grad_input(const OperandContract& contract) {
  return contract.operation == Operation::grad_input;
}
[[nodiscard]] inline bool has_cell(const OperandContract& contract) { return contract.epilogue.lstm; }
[[nodiscard]] inline bool normalises(const OperandContract& contract) { return contract.epilogue.layer_norm; }

/// What the rows of such a matrix have.
enum class RowOf : std::uint8_t {
  outputs,     ///< the features of one gate, or of all that there are, of the output type
  state,       ///< the same of the type of the sums
  gates,       ///< of four gates, of the output type
  sums,        ///< of all groups that are normalised, of the output type
  statistics,  ///< two numbers of each such group, of the type of the sums
};
/// How many elements that is.
[[nodiscard]] std::int64_t width_of(RowOf row, const OperandContract& contract);
[[nodiscard]] DType type_of(RowOf row, const OperandContract& contract);
/// Features of what an output, or an input of grad_input, is: of one gate, or of all that there are.
[[nodiscard]] std::int64_t features_of_end(const OperandContract& contract);

struct EndMatrix {
  std::string_view name;
  TensorView Operands::* operand;
  LaunchMatrix& (*launched)(LaunchOperands& launch);
  RowOf row;
  bool (*taken)(const OperandContract& contract);
  bool (*computed)(const OperandContract& contract);
  TensorView Operands::* in_place = nullptr;  ///< one that is read, where what is computed may be
};

/// The end matrices of a contract.
class EndMatrices {
 public:
  static constexpr std::size_t kMost = 7;  ///< the gradient of a cell whose gates are normalised

  explicit EndMatrices(const OperandContract& contract);
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const EndMatrix& operator[](std::size_t i) const { return *matrices_[i]; }

 private:
  const EndMatrix* matrices_[kMost]{};
  std::size_t size_ = 0;
};

/// Throws `invalid_argument` where epsilon is negative, or given to a kernel that does not take it.
void check_epsilon(const Operands& operands, const OperandContract& contract);

}  // namespace sparsekiln
