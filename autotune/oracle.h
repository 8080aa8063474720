#pragma once

#include <cstdint>
#include <string>

#include <sparsekiln/problem.h>

#include "autotune/inputs.h"
#include "autotune/poisoned_output.h"

namespace sparsekiln {

/// What the oracle found.
struct Verdict {
  bool ok = true;
  double rel_error = 0;        ///< relative Frobenius norm over the finite elements, for people
  double max_error_ratio = 0;  ///< the largest |error| / bound over all elements; above 1 is not ok
  std::int64_t wrong = 0;      ///< elements out of their bound
  std::int64_t unwritten = 0;  ///< elements of y that were never written
  std::int64_t stray = 0;      ///< elements beside y that were
  std::string first_failure;   ///< the first thing wrong, with what was expected; empty where `ok`
};

/// Judges y = x·Wᵀ, element by element, against float64. It knows no device: all is host memory.
///
/// Small integers: each element equals the exact sum, rounded once to the output type, bit for bit.
///
/// Random: |error| ≤ c·u·(|x|·|W|ᵀ) + u_out·|y|, u and u_out the unit roundoffs of float32 and of the output
/// type, c = min(K, 10·√K) with K the products that this element sums. K is the worst case of any order of
/// summation, whether products are fused or rounded, and rows whole or in parts: no product passes through
/// more than K roundings (Higham 2002, Accuracy and Stability of Numerical Algorithms, §4.2; to first order
/// in u). For long rows that is so far from what happens that a lost product would pass; 10·√K holds with
/// probability 1 - 2K·exp(-50) for an element of random inputs (Higham & Mary 2019, SIAM J. Sci. Comput. 41,
/// Theorem 2.4 with λ = 10). Types that tensor cores take have twice that u, for those truncate sums
/// where others round them (Fasi, Higham, Mikaitis & Pranesh 2021, PeerJ Comput. Sci. 7:e330, §4). With
/// `Math::tf32` the float64 product is that of the operands rounded to tf32.
///
/// A NaN passes only where the reference has one, and an Inf only where it has one of the same sign: a
/// planted one must reach the block rows with a block in its column, and no others. The poison must be gone
/// from all of y and untouched beside it.
[[nodiscard]] Verdict check(const Problem& problem, const HostInputs& inputs, const PoisonedOutput& output);

}  // namespace sparsekiln
