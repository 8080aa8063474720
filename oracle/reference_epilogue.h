#pragma once

#include <cstdint>

#include <sparsekiln/problem.h>

namespace sparsekiln {

// Epilogues in float64, for references, with how far a kernel's float32 may be off.

/// A number that a kernel has up to an error.
struct Bounded {
  double value = 0;
  double error = 0;  ///< 0: exactly, bit for bit
};

/// What one output's epilogue takes besides the sums.
struct EpilogueOperands {
  double alpha = 1;
  double beta = 0;
  double bias = 0;
  double v_bias = 0;
  double residual = 0;
  double y = 0;  ///< before
};

/// The epilogue of one output (see Epilogue) of x·Wᵀ and, where glu, x·Vᵀ. Errors of float32 are bounded to
/// first order in its unit roundoff u: those of the sums pass through activations with their Lipschitz
/// constant, and an activation adds what its own row says (compiler/activation.h). Each rounding adds u of
/// its result, but none where the result is an integer or a half, up to 2^22: such are exact.
[[nodiscard]] Bounded apply(const Epilogue& epilogue, const EpilogueOperands& operands, Bounded sum,
                            Bounded v_sum);

/// By how much a derivative may be off: 0 for relu.
[[nodiscard]] double derivative_error(Activation activation);

}  // namespace sparsekiln
