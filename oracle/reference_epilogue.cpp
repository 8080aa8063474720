#include "oracle/reference_epilogue.h"

#include <fmt/format.h>

#include <cmath>

#include <sparsekiln/error.h>

#include "compiler/activation.h"
#include "compiler/element.h"
#include "oracle/check_result.h"

namespace sparsekiln {
namespace {

/// A result of arithmetic on exact operands, which needs no rounding.
bool is_exact(double value) { return std::fabs(value) <= 0x1p22 && value * 2 == std::rint(value * 2); }

Bounded rounded(Bounded value, double u) {
  if (value.error != 0 || !is_exact(value.value)) value.error += u * std::fabs(value.value);
  return value;
}

Bounded activated(Activation activation, Bounded z, DType sums, double u) {
  const ActivationRow& row = row_of(activation);
  return {row.function(z.value), row.lipschitz * z.error + function_error(row, z.value, sums, u)};
}

/// factor·a + b. Some levels of the cpu round the product, too: where it is not exact, that adds to the
/// error.
Bounded multiply_add(double factor, Bounded a, Bounded b, double u) {
  const double product = factor * a.value;
  const bool exact = std::fma(factor, a.value, -product) == 0;
  const double error = std::fabs(factor) * a.error + b.error + (exact ? 0 : u * std::fabs(product));
  return rounded({std::fma(factor, a.value, b.value), error}, u);
}

}  // namespace

double EpilogueOperands::of(std::string_view name) const {
  for (const Number& number : read)
    if (number.name == name) return number.value;
  throw Error(ErrorKind::internal, fmt::format("an epilogue without its operand {}", name));
}

Bounded apply(const Epilogue& epilogue, const EpilogueOperands& operands, Bounded sum, Bounded v_sum,
              DType sums) {
  const double u = error_of_operation(sums);
  // What the sum of a weight becomes with its own scale of rows and bias.
  const auto scaled = [&](Bounded a, std::string_view row_scale, std::string_view bias) {
    if (!epilogue.scale && !epilogue.row_scale && !epilogue.bias) return a;
    // The product of alpha and a scale of rows, which are float32, is rounded.
    const double factor =
        epilogue.row_scale ? rounded(operands.alpha * operands.of(row_scale), sums) : operands.alpha;
    return multiply_add(factor, a, {epilogue.bias ? operands.of(bias) : 0}, u);
  };
  Bounded a = scaled(sum, "row_scale", "bias");
  if (epilogue.edge_bias) a = multiply_add(operands.of("edge_gain"), a, {operands.of("edge_bias")}, u);
  a = activated(epilogue.activation, a, sums, u);
  if (epilogue.glu) {
    const Bounded t = scaled(v_sum, "v_row_scale", "v_bias");
    a = rounded({a.value * t.value, std::fabs(a.value) * t.error + std::fabs(t.value) * a.error}, u);
  }
  if (epilogue.residual) a = rounded({a.value + operands.of("residual"), a.error}, u);
  if (operands.beta != 0) a = multiply_add(operands.beta, {operands.y}, a, u);
  return a;
}

double derivative_error(Activation activation, DType sums) {
  return row_of(activation).derivative_units * error_of_operation(sums);
}

double error_of_operation(DType sums) {
  return (sums == DType::f64 ? 2 : 1) * element_format(sums).unit_roundoff;
}

}  // namespace sparsekiln
