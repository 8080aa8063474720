#pragma once

#include <cstdint>

#include "compiler/spmm.h"
#include "oracle/host_operands.h"

namespace sparsekiln {

/// Rows [first, first + count) of y = x·Bᵀ (compiler/spmm.h), of operands as Problem::derivative and
/// block scales make them, which rounds them to their type, with `Math::tf32` rounded to tf32. No epilogue. A
/// product of two elements is exact in float64, and the sum of K of them is off by at most K·2^-53·magnitude;
/// sums of integers below 2^53 are exact. float64 operands are multiplied and summed in
/// `long double`, which has 11 more bits on x86-64. Inf and NaN follow IEEE 754, and reach only the rows that
/// have a block in their column. A convolution's are by oracle/convolution_reference.h. Uses the host's
/// vector units and all its threads.
[[nodiscard]] Reference reference(const Spmm& problem, const HostOperands& operands, std::int64_t first,
                                  std::int64_t count, bool with_magnitude);

}  // namespace sparsekiln
