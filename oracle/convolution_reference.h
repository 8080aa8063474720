#pragma once

#include <cstdint>

#include "compiler/spmm.h"
#include "oracle/host_operands.h"

namespace sparsekiln {

/// What `reference` gives for a convolution, or for its gradient by the input, in float64:
///
///   y[n, p, k]  = Σ over c and r of            x[n, p·stride + r·dilation - padding_before, c] · W[k, c, r]
///   dx[n, i, c] = Σ over k, and r and p with i = p·stride + r·dilation - padding_before, of
///                                                                      dy[n, p, k] · W[k, c, r]
///
/// read word for word, from Computation::convolution alone: it checks what compiler/correlation.h makes of
/// that. Where x or dy has no such position there is no product: an Inf of W adds nothing there; nor is there
/// one where a mask takes the tap from a block. Where the convolution is transposed, y is made of x as dx is
/// of dy here, and dx of dy as y of x.
[[nodiscard]] Reference convolution_reference(const Spmm& problem, const HostOperands& operands,
                                              std::int64_t first, std::int64_t count, bool with_magnitude);

/// The row of x, or of dy for grad_input, that `tap` multiplies for row `row` of y, or of dx; -1: none. For
/// the gradient of the weight it is the row of x for one of dy, of forward, or where the convolution is
/// transposed the row of dy for one of x, of grad_input.
[[nodiscard]] std::int64_t row_read(const Convolution& convolution, Operation operation, std::int64_t row,
                                    std::int32_t tap);

}  // namespace sparsekiln
