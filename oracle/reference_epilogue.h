#pragma once

#include <string_view>
#include <vector>

#include <sparsekiln/problem.h>

namespace sparsekiln {

// Epilogues in float64, for references, with how far a kernel's sums may be off.

/// A number that a kernel has up to an error.
struct Bounded {
  double value = 0;
  double error = 0;  ///< 0: exactly, bit for bit
};

/// What one output's epilogue takes besides the sums.
struct EpilogueOperands {
  struct Number {
    std::string_view name;  ///< of the operand, in the table of operands
    double value = 0;
  };
  double alpha = 1;
  double beta = 0;
  double y = 0;  ///< before
  std::vector<Number> read;

  /// Throws `internal` where it is not there.
  [[nodiscard]] double of(std::string_view name) const;
};

/// The epilogue of one output (see Epilogue) of x·Wᵀ and, where glu, x·Vᵀ. Errors are bounded to first order
/// in u = error_of_operation(sums): those of the sums pass through activations with their Lipschitz constant,
/// and an activation adds what its own row says (compiler/activation.h). Each rounding adds u of its result,
/// but none where the result is an integer or a half, up to 2^22: such are exact. Throws `internal` where the
/// operands lack one that the epilogue takes.
[[nodiscard]] Bounded apply(const Epilogue& epilogue, const EpilogueOperands& operands, Bounded sum,
                            Bounded v_sum, DType sums = DType::f32);

/// By how much a derivative may be off, with sums of type `sums`: 0 for relu.
[[nodiscard]] double derivative_error(Activation activation, DType sums);

/// The error that one operation on sums of this type may have, relative to its result: the unit roundoff of
/// float32. For float64 it is twice that of float64: the reference is computed in float64, too, and errs as
/// much.
[[nodiscard]] double error_of_operation(DType sums);

}  // namespace sparsekiln
