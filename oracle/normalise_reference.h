#pragma once

#include <span>
#include <vector>

#include <sparsekiln/problem.h>

#include "oracle/reference_epilogue.h"

namespace sparsekiln {

// Layer normalisation (see Epilogue) in float64, of a batch row, with how far a kernel's numbers may be off.
// z is what is stored as `sums`: what a kernel makes of it is judged apart from how it got there. Rows of
// four gates hold those of i, f, g and o one after the other.

/// What a batch row has besides its sums; matrices that an epilogue has not are empty.
struct NormalisedRowOperands {
  std::span<const double> gain;  ///< of all groups, as is bias
  std::span<const double> bias;
  std::vector<double> multiplier;
  std::vector<double> addend;
  std::vector<double> c_before;  ///< with `lstm`
  std::vector<double> c;         ///< with `lstm` of the gradient, as is dc
  std::vector<double> dc;
};

/// What forward computes. `statistics` has the mean and 1/σ of each group, c is empty without `lstm`.
struct NormalisedRow {
  std::vector<Bounded> statistics;
  std::vector<Bounded> y;
  std::vector<Bounded> c;
};
/// The mean of K numbers may be off by c·u of their magnitudes, c = min(K, 10·√K). Squares are those of
/// differences from a mean, so that their sum is off by the square of the mean's error and by (c + 4)·u of
/// itself: a kernel that subtracts the square of the mean from the mean of squares loses more. 1/σ may be off
/// by what that is in it, and by four roundings; an error passes on to u, and from there through gain,
/// multiplier and activation.
[[nodiscard]] NormalisedRow normalised_row(const Epilogue& ends, std::span<const double> z, double epsilon,
                                           const NormalisedRowOperands& operands, DType sums);

/// What its gradient computes of the row. dgain and dbias are what it adds to them. What an epilogue has not
/// is empty.
struct NormalisedRowGradient {
  std::vector<Bounded> dx;
  std::vector<Bounded> dmultiplier;
  std::vector<Bounded> daddend;
  std::vector<Bounded> dc_before;
  std::vector<Bounded> dgain;
  std::vector<Bounded> dbias;
};
/// From the sums of the product, dh. They, and e, are of the type of the sums in a kernel, whatever that of
/// dx is.
[[nodiscard]] NormalisedRowGradient normalised_row_gradient(const Epilogue& ends, std::span<const double> z,
                                                            std::span<const double> statistics,
                                                            const NormalisedRowOperands& operands,
                                                            std::span<const Bounded> dh, DType sums);

}  // namespace sparsekiln
