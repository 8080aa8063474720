#pragma once

#include <cstdint>
#include <vector>

#include <sparsekiln/problem.h>

#include "compiler/spmm.h"

namespace sparsekiln {

/// x[n, in_features] of the product (dy, for grad_input) and the weight's values[blocks, block_out, block_in]
/// in host memory, elements of problem.dtype.
struct HostOperands {
  const void* x = nullptr;
  const void* w = nullptr;
  std::int64_t x_stride = 0;  ///< elements from one batch entry of x to the next
};

/// The product in float64 for some batch entries, row-major [count, out_features].
struct Reference {
  std::vector<double> y;          ///< x·Bᵀ
  std::vector<double> magnitude;  ///< |x|·|B|ᵀ, what rounding errors scale with; empty unless asked for
};

/// Batch entries [first, first + count) of x·Bᵀ (compiler/spmm.h), with `Math::tf32` of operands rounded to
/// tf32. A product of two elements is exact in float64, and the sum of K of them is off by at most
/// K·2^-53·magnitude; sums of integers below 2^53 are exact. Inf and NaN follow IEEE 754, and reach only the
/// rows that have a block in their column. Uses the host's vector units and all its threads.
[[nodiscard]] Reference reference(const Spmm& problem, const HostOperands& operands, std::int64_t first,
                                  std::int64_t count, bool with_magnitude);

}  // namespace sparsekiln
