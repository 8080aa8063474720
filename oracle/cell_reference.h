#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include <sparsekiln/problem.h>

#include "oracle/reference_epilogue.h"

namespace sparsekiln {

// The cell of an LSTM (see Epilogue) in float64, of one output, with how far a kernel's numbers may be off.
// Four gates are i, f, g and o.

using BoundedGates = std::array<Bounded, 4>;
inline constexpr std::size_t kCandidateGate = 2;  ///< g

/// What forward computes.
struct CellReference {
  Bounded h;
  Bounded c;
  BoundedGates activations;
};
/// From the sums of the four products.
[[nodiscard]] CellReference cell_reference(const BoundedGates& sums, const std::array<double, 4>& projection,
                                           double c_before, DType type);
/// From the arguments of the activations; `multiplier`: of g, after its activation.
[[nodiscard]] CellReference cell_reference(const BoundedGates& arguments, std::optional<double> multiplier,
                                           double c_before, DType type);

/// What its gradient computes.
struct CellGradientReference {
  BoundedGates dz;
  Bounded dc_before;
};
/// What the gradient reads of one output.
struct CellOfGradient {
  std::array<double, 4> activations;
  double c;
  double c_before;
  double dc;
  double residual;  ///< 0 where there is none
};
/// From the sum of the product.
[[nodiscard]] CellGradientReference cell_gradient_reference(Bounded sum, const CellOfGradient& cell,
                                                            DType type);

/// The same where activations are computed again.
struct CellOfArguments {
  BoundedGates arguments;  ///< of the activations
  std::optional<double> multiplier;
  double c;
  double c_before;
  double dc;
};
/// From the gradient of h.
[[nodiscard]] CellGradientReference cell_gradient_reference(Bounded dh, const CellOfArguments& cell,
                                                            DType type);

}  // namespace sparsekiln
