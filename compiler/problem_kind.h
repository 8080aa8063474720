#pragma once

#include <cstdint>
#include <utility>
#include <variant>

#include <sparsekiln/error.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

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
      return ProblemKind::sddmm;
  }
  throw Error(ErrorKind::internal, "an operation that belongs to no kind of problem");
}

/// Whether an operation is a gradient: those have the derivative of an activation, and short epilogues.
[[nodiscard]] constexpr bool is_gradient(Operation operation) {
  switch (operation) {
    case Operation::forward:
      return false;
    case Operation::grad_input:
    case Operation::grad_weight:
      return true;
  }
  throw Error(ErrorKind::internal, "an operation that is neither a gradient nor none");
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
      return Sddmm(problem);
  }
  throw Error(ErrorKind::internal, "a kind of problem that nothing computes");
}

/// The channels-last equivalent of a convolution's channels-first activations, of rows that are aligned to 16
/// bytes, as CUDA targets compute it; all else as it is.
template <class Kind>
[[nodiscard]] Kind on_rows(Kind computed) {
  if (!computed.channels_first()) return computed;
  computed.image_alignment = std::exchange(computed.alignment, 16);
  computed.order = ActivationOrder::batch_major;
  computed.overlap_launches = false;
  return computed;
}

/// What a target computes: see Backend::lower.
[[nodiscard]] Computed computed_by(const Problem& problem, const Target& target);

}  // namespace sparsekiln
