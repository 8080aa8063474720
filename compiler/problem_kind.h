#pragma once

#include <cstdint>
#include <variant>

#include <sparsekiln/problem.h>

#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln {

/// What operations have in common: operands, schedules, families of kernels and oracles belong to a kind.
enum class ProblemKind : std::uint8_t {
  spmm,   ///< dense activations times the weight, or its transpose: compiler/spmm.h
  sddmm,  ///< a product of dense matrices on the blocks of the layout alone: compiler/sddmm.h
};
[[nodiscard]] constexpr ProblemKind kind_of(Operation operation) {
  switch (operation) {
    case Operation::forward:
    case Operation::grad_input:
      return ProblemKind::spmm;
    case Operation::grad_weight:
      break;
  }
  return ProblemKind::sddmm;
}

/// What a problem computes, as the code of its kind has it. Whatever depends on the kind is a set of
/// functions overloaded for these types, called by std::visit: a kind that one of them lacks does not
/// compile.
using Computed = std::variant<Spmm, Sddmm>;
[[nodiscard]] inline Computed computed_by(const Problem& problem) {
  switch (kind_of(problem.operation)) {
    case ProblemKind::spmm:
      return Spmm(problem);
    case ProblemKind::sddmm:
      break;
  }
  return Sddmm(problem);
}

}  // namespace sparsekiln
