#include "oracle/bounded_arithmetic.h"

#include <algorithm>
#include <cmath>

#include "compiler/activation.h"
#include "compiler/element.h"
#include "oracle/check_result.h"

namespace sparsekiln {
namespace {

double scaled(double factor, double error) { return error == 0 ? 0 : std::fabs(factor) * error; }

}  // namespace

BoundedArithmetic::BoundedArithmetic(DType sums) : type_(sums), u_(error_of_operation(sums)) {}

Bounded BoundedArithmetic::rounded(double value, double error) const {
  return {value, error + u_ * std::fabs(value)};
}
Bounded BoundedArithmetic::add(Bounded a, Bounded b) const {
  return rounded(a.value + b.value, a.error + b.error);
}
Bounded BoundedArithmetic::subtract(Bounded a, Bounded b) const { return add(a, {-b.value, b.error}); }
Bounded BoundedArithmetic::multiply(Bounded a, Bounded b) const {
  return rounded(a.value * b.value, scaled(a.value, b.error) + scaled(b.value, a.error));
}

Bounded BoundedArithmetic::activated(Activation activation, Bounded z) const {
  const ActivationRow& row = row_of(activation);
  // A kernel has the same infinity or NaN, and the limit of the function, which is finite.
  if (!std::isfinite(z.value)) return {row.function(z.value), u_};
  return {row.function(z.value), row.lipschitz * z.error + function_error(row, z.value, type_, u_)};
}

Bounded BoundedArithmetic::derivative(Activation activation, Bounded z) const {
  const auto at = [&](double place) { return row_of(activation).derivative(place); };
  const double value = at(z.value);
  const double moved =
      std::max(std::fabs(at(z.value - z.error) - value), std::fabs(at(z.value + z.error) - value));
  return {value, moved + derivative_error(activation, type_)};
}

Bounded BoundedArithmetic::mean(std::span<const Bounded> numbers) const {
  BoundedSum all;
  for (const Bounded& number : numbers) all.add(number);
  const Bounded sum = all.sum(0, *this);
  const auto count = static_cast<double>(numbers.size());
  return rounded(sum.value / count, sum.error / count);
}

double roundings_of(double k) { return std::min(k, 10 * std::sqrt(k)); }

void BoundedSum::add(Bounded term) {
  value_ += term.value;
  magnitude_ += std::fabs(term.value);
  error_ += term.error;
  squares_ += term.error * term.error;
  ++count_;
}

Bounded BoundedSum::sum(double first, const BoundedArithmetic& in) const {
  if (count_ == 0) return {first, 0};
  const double rounding = roundings_of(count_) * in.unit() * (magnitude_ + std::fabs(first));
  return {first + value_, std::min(error_, 10 * std::sqrt(squares_)) + rounding};
}

}  // namespace sparsekiln
