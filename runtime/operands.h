#pragma once

#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>

namespace sparsekiln {

/// The operands of an operation that is a product (compiler/spmm.h), by their places in it: from · Bᵀ = to.
[[nodiscard]] inline Operands operands_of(Operation operation, const TensorView& from, const TensorView& w,
                                          const TensorView& to) {
  switch (operation) {
    case Operation::forward:
      return {.x = from, .w = w, .y = to};
    case Operation::grad_input:
      return {.w = w, .dy = from, .dx = to};
    case Operation::grad_weight:
      break;
  }
  throw Error(ErrorKind::internal, "the gradient of the weight is no such product");
}

}  // namespace sparsekiln
