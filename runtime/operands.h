#pragma once

#include <string_view>

#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>

namespace sparsekiln {

/// Which operands an operation that is a product (compiler/spmm.h) has in its places: from · Bᵀ = to.
struct OperandPlaces {
  std::string_view from_name;
  TensorView Operands::* from;
  std::string_view to_name;
  TensorView Operands::* to;
};
/// Throws `internal` for one that is none.
[[nodiscard]] inline OperandPlaces places_of(Operation operation) {
  switch (operation) {
    case Operation::forward:
      return {"x", &Operands::x, "y", &Operands::y};
    case Operation::grad_input:
      return {"dy", &Operands::dy, "dx", &Operands::dx};
    case Operation::grad_weight:
      break;
  }
  throw Error(ErrorKind::internal, "the gradient of the weight is no product with it");
}

/// The operands of such an operation, by their places.
[[nodiscard]] inline Operands operands_of(Operation operation, const TensorView& from, const TensorView& w,
                                          const TensorView& to) {
  const OperandPlaces places = places_of(operation);
  Operands operands;
  operands.w = w;
  operands.*places.from = from;
  operands.*places.to = to;
  return operands;
}

}  // namespace sparsekiln
