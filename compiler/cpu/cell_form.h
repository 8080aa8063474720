#pragma once

#include <optional>

#include <sparsekiln/problem.h>

namespace sparsekiln::cpu {

/// Which cell of an LSTM an epilogue is.
struct CellForm {
  bool forward;  ///< else its gradient
  bool keep;     ///< forward also stores the gates
  bool feature_major;
  DType state;  ///< of c and its gradients: the type of the sums
  DType gates;  ///< of all others: the output type
};

/// None: the epilogue is no cell.
[[nodiscard]] inline std::optional<CellForm> cell_of(const Computation& what) {
  if (!what.epilogue.lstm) return std::nullopt;
  return CellForm{.forward = what.operation == Operation::forward,
                  .keep = what.epilogue.keep,
                  .feature_major = what.feature_major(),
                  .state = what.sum_type(),
                  .gates = what.out_dtype};
}

}  // namespace sparsekiln::cpu
