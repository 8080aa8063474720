#pragma once

#include <span>

#include <sparsekiln/problem.h>

#include "oracle/reference_epilogue.h"

namespace sparsekiln {

/// Arithmetic in sums of a type, in float64, on numbers whose errors are bounded to first order. Each
/// operation adds a rounding of its result.
class BoundedArithmetic {
 public:
  explicit BoundedArithmetic(DType sums);

  [[nodiscard]] Bounded add(Bounded a, Bounded b) const;
  [[nodiscard]] Bounded subtract(Bounded a, Bounded b) const;
  [[nodiscard]] Bounded multiply(Bounded a, Bounded b) const;
  [[nodiscard]] Bounded activated(Activation activation, Bounded z) const;
  /// The derivative at z. Where z may be on either side of a kink, so may the result.
  [[nodiscard]] Bounded derivative(Activation activation, Bounded z) const;
  /// The mean of numbers that are added in any order: c·u of their magnitudes, c = min(K, 10·√K) for K of
  /// them as in spmm_check.h, and their own errors, which add up to no more than 10 times the root of their
  /// squares.
  [[nodiscard]] Bounded mean(std::span<const Bounded> numbers) const;
  [[nodiscard]] double unit() const { return u_; }

 private:
  [[nodiscard]] Bounded rounded(double value, double error) const;

  DType type_;
  double u_;
};

/// min(k, 10·√k): how many roundings a sum of k numbers has, see spmm_check.h.
[[nodiscard]] double roundings_of(double k);

/// A sum whose terms come one after the other.
class BoundedSum {
 public:
  void add(Bounded term);
  /// Terms are added in any order to what was there first.
  [[nodiscard]] Bounded sum(double first, const BoundedArithmetic& in) const;

 private:
  double value_ = 0;
  double magnitude_ = 0;
  double error_ = 0;
  double squares_ = 0;  ///< of errors
  double count_ = 0;
};

}  // namespace sparsekiln
