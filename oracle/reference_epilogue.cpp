#include "oracle/reference_epilogue.h"

#include <cmath>
#include <numbers>

#include "compiler/element.h"

namespace sparsekiln {
namespace {

constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;  ///< of the approximation by tanh
constexpr double kLipschitz = 1.13;  ///< gelu's steepest, near z = 1.41; silu's is 1.0998

double sigmoid(double t) { return 1 / (1 + std::exp(-t)); }
double normal_cdf(double z) { return std::erfc(-z / std::numbers::sqrt2) / 2; }

/// A result of arithmetic on exact operands, which needs no rounding.
bool is_exact(double value) { return std::fabs(value) <= 0x1p22 && value * 2 == std::rint(value * 2); }

Bounded rounded(Bounded value, double u) {
  if (value.error != 0 || !is_exact(value.value)) value.error += u * std::fabs(value.value);
  return value;
}

Bounded activated(Activation activation, Bounded z, double u) {
  if (activation == Activation::none) return z;
  const double value = activate(activation, z.value);
  if (activation == Activation::relu) return {value, z.error};
  constexpr double kLeastExp = 0x1p-125;  // e^-87, below which a kernel's exponential is 0
  const double relative = (16 + 8 * z.value * z.value) * u;
  return {value, kLipschitz * z.error + relative * std::fabs(value) + kLeastExp * std::fabs(z.value)};
}

/// alpha·sum + bias, one multiply-add.
Bounded scaled(double alpha, Bounded sum, double bias, double u) {
  return rounded({alpha * sum.value + bias, std::fabs(alpha) * sum.error}, u);
}

}  // namespace

double activate(Activation activation, double z) {
  switch (activation) {
    case Activation::none:
      return z;
    case Activation::relu:
      return std::isnan(z) || z > 0 ? z : 0;
    case Activation::gelu:
      return z * normal_cdf(z);
    case Activation::gelu_tanh:
      return z * sigmoid(2 * kSqrt2OverPi * (z + kCubic * z * z * z));
    case Activation::silu:
      return z * sigmoid(z);
  }
  return z;
}

double derivative(Activation activation, double z) {
  switch (activation) {
    case Activation::none:
      return 1;
    case Activation::relu:
      return z > 0 ? 1 : 0;
    case Activation::gelu:
      return normal_cdf(z) + z * std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
    case Activation::gelu_tanh: {
      const double s = sigmoid(2 * kSqrt2OverPi * (z + kCubic * z * z * z));
      return s + z * s * (1 - s) * 2 * kSqrt2OverPi * (1 + 3 * kCubic * z * z);
    }
    case Activation::silu: {
      const double s = sigmoid(z);
      return s + z * s * (1 - s);
    }
  }
  return 1;
}

Bounded apply(const Epilogue& epilogue, const EpilogueOperands& operands, Bounded sum, Bounded v_sum,
              DType sums) {
  const double u = error_of_operation(sums);
  const bool has_z = epilogue.scale || epilogue.bias;
  Bounded a = has_z ? scaled(operands.alpha, sum, operands.bias, u) : sum;
  a = activated(epilogue.activation, a, u);
  if (epilogue.glu) {
    const Bounded t = has_z ? scaled(operands.alpha, v_sum, operands.v_bias, u) : v_sum;
    a = rounded({a.value * t.value, std::fabs(a.value) * t.error + std::fabs(t.value) * a.error}, u);
  }
  if (epilogue.residual) a = rounded({a.value + operands.residual, a.error}, u);
  if (operands.beta != 0) a = rounded({a.value + operands.beta * operands.y, a.error}, u);
  return a;
}

double derivative_error(Activation activation, DType sums) {
  return activation == Activation::none || activation == Activation::relu ? 0 : 64 * error_of_operation(sums);
}

double error_of_operation(DType sums) {
  return (sums == DType::f64 ? 2 : 1) * element_format(sums).unit_roundoff;
}

}  // namespace sparsekiln
