#pragma once

#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>

#include "compiler/spmm.h"
#include "oracle/check_result.h"
#include "oracle/poisoned_output.h"
#include "oracle/spmm_inputs.h"
#include "oracle/spmm_reference.h"

namespace sparsekiln {

/// The adder of the kernels of a plan: tensor cores where any of them uses those.
[[nodiscard]] Adder adder_of(const Spmm& problem, const Plan& plan);

/// Judges y = x·Bᵀ (compiler/spmm.h: B is W; or Wᵀ, where x is dy and y is dx), element by element, against
/// float64. It knows no device: all is host memory. The rows of a convolution's y are its positions, image by
/// image.
///
/// Small integers: each element equals the exact sum, rounded once to the output type, bit for bit.
///
/// Random: |error| ≤ a·c·u·(|x|·|W|ᵀ) + u_out·|y|, u and u_out the unit roundoffs of the sums and of the
/// output type, c = min(K, 10·√K) with K the products that this element sums, and a what the adder loses
/// more than rounding would. K is the worst case of any order of summation, whether products are fused or
/// rounded, and rows whole or in parts: no product passes through more than K roundings (Higham 2002,
/// Accuracy and Stability of Numerical Algorithms, §4.2; to first order in u). For long rows that is so far
/// from what happens that a lost product would pass; 10·√K holds with probability 1 - 2K·exp(-50) for an
/// element of random inputs (Higham & Mary 2019, SIAM J. Sci. Comput. 41, Theorem 2.4 with λ = 10).
///
/// a = 1 for an adder that rounds each sum once, whatever the type of x and W: their products are exact in
/// float32 or fused. a = 5/2 for tensor cores. These add b exact products and the sum so far, s, at once:
/// all are aligned to the largest of them and truncated there, to 24 bits on the oldest (later ones keep
/// more), and their sum is normalized and truncated to 24 bits, never rounded (Fasi, Higham, Mikaitis &
/// Pranesh 2021, Numerical behavior of NVIDIA tensor cores, PeerJ Comput. Sci. 7:e330; b = 4 on the V100 and
/// T4, and for tf32 on the A100; 8 for its 16-bit types). Truncation loses up to 2u of the largest for each
/// of the other b, and 2u of the result: 2u·(b + 1)·|s| for b products, as |s| ≤ |x|·|W|ᵀ, where b roundings
/// lose u·b·|s|. a = 2·(b + 1)/b is largest for the smallest b. Above, the 10·√K stays: what products lose
/// has the signs of the products, thus no bias, and the bias that the truncated sums have towards zero,
/// 2u·|s| in each of K/b steps with |s| near √K, is a fraction of it.
///
/// Tensor cores add 8-bit floats with 13 bits of fraction, within one instruction (templates/product.cuh):
/// products lose up to 2^-13 of the largest of them, which is 1, and their sum as much of itself. Those are
/// added to the bound: c·2^-13 and 2^-13·(|x|·|W|ᵀ); with Adder::warpgroups 2^-10, as the sums that up to
/// four instructions truncate to are 8 and less where products have random signs. Small integers stay exact,
/// as 128 products of them are below 2^13. Sums of integers are exact whatever the inputs, and rounded to
/// float32 before an epilogue.
///
/// With `Math::tf32` the float64 product is that of the operands rounded to tf32. The errors of the sums and
/// those of an epilogue come together as oracle/reference_epilogue.h says; what stays exact there must be
/// equal.
///
/// What an LSTM's cell computes is compared with oracle/cell_reference.h, of the same products. Where sums
/// are normalised, they are compared as y would be, and what is made of them with
/// oracle/normalise_reference.h, of the sums as the kernel stored them: an error there is no error of theirs.
/// The sum that is added to dnorm may be off by the errors of its terms, up to 10 times the root of their
/// squares, and by c·u of their magnitudes.
///
/// A NaN passes only where the reference has one, and an Inf only where it has one of the same sign: a
/// planted one must reach the block rows with a block in its column, and no others. The poison must be gone
/// from all of y and untouched beside it.
[[nodiscard]] CheckResult check(const Spmm& problem, const HostInputs& inputs, const PoisonedOutput& output,
                                Adder adder);

/// The products with each weight of one stretch of y's rows: W, and V of a GLU, or the four of an LSTM's
/// cell.
using Products = std::vector<Reference>;
/// What `check` compares with, for checking many results of the same inputs: the products of stretches of y's
/// rows. Two float64 an element of y and a weight.
using Expected = std::vector<Products>;
[[nodiscard]] Expected expect(const Spmm& problem, const HostInputs& inputs);
/// As above; `expected` is that of the problem and the inputs.
[[nodiscard]] CheckResult check(const Spmm& problem, const HostInputs& inputs, const Expected& expected,
                                const PoisonedOutput& output, Adder adder);

}  // namespace sparsekiln
