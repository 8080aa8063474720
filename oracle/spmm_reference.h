#pragma once

#include <cstdint>
#include <vector>

#include <sparsekiln/problem.h>

#include "compiler/spmm.h"

namespace sparsekiln {

/// What a product multiplies, in host memory, elements of problem.dtype: x (dy, for grad_input), [n,
/// in_features] or, feature-major, [in_features, n], and the weight's values[blocks, block_out, block_in].
struct HostOperands {
  const void* x = nullptr;
  const void* w = nullptr;
  std::int64_t x_stride = 0;    ///< elements from one row of x to the next
  const void* z = nullptr;      ///< with Problem::derivative, like x
  std::int64_t z_stride = 0;    ///< elements
  const void* gates = nullptr;  ///< with Problem::gates, of the type of sums
};

/// The product for some batch rows, row-major [count, out_features]: in float64, of float64 operands in
/// `long double`, rounded once.
struct Reference {
  std::vector<double> y;          ///< x·Bᵀ
  std::vector<double> magnitude;  ///< |x|·|B|ᵀ, what rounding errors scale with; empty unless asked for
};

/// Batch rows [first, first + count) of x·Bᵀ (compiler/spmm.h), of operands as Problem::derivative and
/// gates make them, which rounds them to their type, with `Math::tf32` rounded to tf32. No epilogue. A
/// product of two elements is exact in float64, and the sum of K of them is off by at most K·2^-53·magnitude;
/// sums of integers below 2^53 are exact. float64 operands are multiplied and summed in
/// `long double`, which has 11 more bits on x86-64. Inf and NaN follow IEEE 754, and reach only the rows that
/// have a block in their column. Uses the host's vector units and all its threads.
[[nodiscard]] Reference reference(const Spmm& problem, const HostOperands& operands, std::int64_t first,
                                  std::int64_t count, bool with_magnitude);

}  // namespace sparsekiln
