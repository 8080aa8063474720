#pragma once

#include <vector>

#include "compiler/sddmm.h"
#include "oracle/check_result.h"
#include "oracle/sddmm_inputs.h"

namespace sparsekiln {

/// The gradients in float64 (of float64 operands summed in `long double`), before alpha and beta, and what
/// rounding errors of their sums scale with:
///
///   dw             Σ dyᵀ·x   of_dw             |dy|ᵀ·|x|     [blocks, block_out, block_in], not scaled
///   dbias          Σ dy      of_dbias          Σ |dy|        [out_features]
///   dblock_scales  Σ dw·W    of_dblock_scales  Σ of_dw·|W|   [blocks of the layout]
///
/// with dy multiplied by the derivative where there is one, and with `Math::tf32` x and dy rounded to tf32
/// for dw. dbias and dblock_scales are empty where they are not asked for.
struct SddmmReference {
  std::vector<double> dw, of_dw;
  std::vector<double> dbias, of_dbias;
  std::vector<double> dblock_scales, of_dblock_scales;
};

/// Sums in ascending order of pairs and batch rows; exact for integers below 2^53. A block row is summed
/// by one thread: the result does not depend on their number.
[[nodiscard]] SddmmReference reference(const Sddmm& gradient, const SddmmInputs& inputs);

/// Compares what a launch computed with float64, element by element, as `check` of spmm_check.h does
/// products.
///
/// Small integers: each element equals the exact result, rounded once to its type, bit for bit.
///
/// Random, with the gradients and their magnitudes named as above, u and u_out the unit roundoffs of sums
/// and of dw's type, and c(K) = min(K, 10·√K) as in spmm_check.h, K the batch rows of all pairs, E the
/// elements that a block scale multiplies, and a the adder's loss:
///
///   dw             |error| ≤ a·c(K)·u·|s|·of_dw + 4u·(|s·Σ| + |beta·old|) + u_out·|dw|
///   dbias          |error| ≤ a·c(K)·u·|alpha|·of_dbias + 4u·(…) + u·|dbias|
///   dblock_scales  |error| ≤ (a·c(K) + c(E))·u·|alpha|·of_dblock_scales + 4u·(…) + u·|dblock_scales|
///
/// where dw = s·Σ + beta·old, and s is alpha times the block scale (below the normal numbers, u_out of the
/// smallest of them). The error that a derivative may have is added to each, as for products. The four
/// roundings are those of s, of its product with Σ, of beta·old and of their sum. All elements must have been
/// written, and none beside them.
[[nodiscard]] CheckResult check(const Sddmm& gradient, const SddmmInputs& inputs, const SddmmOutputs& outputs,
                                Adder adder);
/// As above, for checking many results of the same inputs: `want` is their reference.
[[nodiscard]] CheckResult check(const Sddmm& gradient, const SddmmInputs& inputs, const SddmmReference& want,
                                const SddmmOutputs& outputs, Adder adder);

}  // namespace sparsekiln
