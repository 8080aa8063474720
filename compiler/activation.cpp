#include "compiler/activation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "compiler/element.h"

namespace sparsekiln {
namespace {

constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;  ///< of the approximation of gelu by tanh

// Written so that nothing cancels: what is 1 - sigmoid(t) is sigmoid(-t).

double sigmoid(double t) { return 1 / (1 + std::exp(-t)); }
double normal_cdf(double z) { return std::erfc(-z / std::numbers::sqrt2) / 2; }

double identity(double z) { return z; }
double one(double) { return 1; }

double relu(double z) { return std::isnan(z) || z > 0 ? z : 0; }
double relu_derivative(double z) { return z > 0 ? 1 : 0; }

double gelu(double z) { return z * normal_cdf(z); }
double gelu_derivative(double z) {
  return normal_cdf(z) + z * std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
}

double gelu_tanh(double z) { return z * sigmoid(2 * kSqrt2OverPi * (z + kCubic * z * z * z)); }
double gelu_tanh_derivative(double z) {
  const double t = 2 * kSqrt2OverPi * (z + kCubic * z * z * z);
  return sigmoid(t) + z * sigmoid(t) * sigmoid(-t) * 2 * kSqrt2OverPi * (1 + 3 * kCubic * z * z);
}

double silu(double z) { return z * sigmoid(z); }
double silu_derivative(double z) { return sigmoid(z) + z * sigmoid(z) * sigmoid(-z); }

double hardswish(double z) { return z * (std::min(std::max(z + 3, 0.0), 6.0) / 6); }
double hardswish_derivative(double z) { return z <= -3 ? 0 : z >= 3 ? 1 : z / 3 + 0.5; }

double mish(double z) { return z * std::tanh(std::log1p(std::exp(z))); }
double mish_derivative(double z) {
  const double softplus = std::log1p(std::exp(z));
  const double cosine = std::cosh(softplus);  // 1 - tanh² would cancel
  return std::tanh(softplus) + z * sigmoid(z) / (cosine * cosine);
}

double leaky_relu(double z) { return z > 0 ? z : 0.01 * z; }
double leaky_relu_derivative(double z) { return z > 0 ? 1 : 0.01; }

double hyperbolic_tangent(double z) { return std::tanh(z); }
double tanh_derivative(double z) {
  const double cosine = std::cosh(z);
  return 1 / (cosine * cosine);
}

double sigmoid_derivative(double z) {
  const double e = std::exp(-std::fabs(z));
  return e / ((1 + e) * (1 + e));
}

// The units of each row are what a scan of float32 against float64 gives (tests/compiler/activation_test.cpp,
// tests/kernels/activation_test.cpp), rounded up, with room for levels that round a multiply-add twice.
constexpr std::array kRows{
    ActivationRow{.value = Activation::none,
                  .name = "none",
                  .device = "NoActivation",
                  .function = identity,
                  .derivative = one,
                  .lipschitz = 1,
                  .derivative_from_result = true},
    ActivationRow{.value = Activation::relu,
                  .name = "relu",
                  .device = "Relu",
                  .function = relu,
                  .derivative = relu_derivative,
                  .lipschitz = 1,
                  .derivative_from_result = true,
                  .value_cost = 2,
                  .derivative_cost = 7},
    // Far out, where gelu is e^(-z²/2), the rounding of z² counts as often as z² says.
    ActivationRow{.value = Activation::gelu,
                  .name = "gelu",
                  .device = "Gelu",
                  .function = gelu,
                  .derivative = gelu_derivative,
                  .lipschitz = 1.13,  // near z = 1.41
                  .value_units = 16,
                  .value_units_z2 = 8,
                  .derivative_units = 64,
                  .value_cost = 45,
                  .derivative_cost = 50},
    ActivationRow{.value = Activation::gelu_tanh,
                  .name = "gelu_tanh",
                  .device = "GeluTanh",
                  .function = gelu_tanh,
                  .derivative = gelu_tanh_derivative,
                  .lipschitz = 1.13,
                  .value_units = 16,
                  .value_units_z2 = 8,
                  .derivative_units = 64,
                  .value_cost = 30,
                  .derivative_cost = 40},
    ActivationRow{.value = Activation::silu,
                  .name = "silu",
                  .device = "Silu",
                  .function = silu,
                  .derivative = silu_derivative,
                  .lipschitz = 1.1,  // near z = 2.40
                  .value_units = 16,
                  .value_units_z2 = 8,
                  .derivative_units = 64,
                  .value_cost = 25,
                  .derivative_cost = 35},
    ActivationRow{.value = Activation::hardswish,
                  .name = "hardswish",
                  .device = "HardSwish",
                  .function = hardswish,
                  .derivative = hardswish_derivative,
                  .lipschitz = 1.5,  // just below z = 3
                  .value_units = 4,
                  .derivative_units = 2,
                  .value_cost = 7,
                  .derivative_cost = 12},
    ActivationRow{.value = Activation::mish,
                  .name = "mish",
                  .device = "Mish",
                  .function = mish,
                  .derivative = mish_derivative,
                  .lipschitz = 1.089,  // near z = 1.49
                  .value_units = 6,
                  .derivative_units = 5,
                  .value_cost = 32,
                  .derivative_cost = 42},
    ActivationRow{.value = Activation::leaky_relu,
                  .name = "leaky_relu",
                  .device = "LeakyRelu",
                  .function = leaky_relu,
                  .derivative = leaky_relu_derivative,
                  .lipschitz = 1,
                  .derivative_from_result = true,
                  .value_units = 2,
                  .derivative_units = 1,
                  .value_cost = 3,
                  .derivative_cost = 8},
    ActivationRow{.value = Activation::tanh,
                  .name = "tanh",
                  .device = "Tanh",
                  .function = hyperbolic_tangent,
                  .derivative = tanh_derivative,
                  .lipschitz = 1,
                  .value_units = 5,
                  .derivative_units = 4,
                  .value_cost = 30,
                  .derivative_cost = 32},
    ActivationRow{.value = Activation::sigmoid,
                  .name = "sigmoid",
                  .device = "Sigmoid",
                  .function = sigmoid,
                  .derivative = sigmoid_derivative,
                  .lipschitz = 0.25,
                  .value_units = 4,
                  .derivative_units = 1,
                  .value_cost = 24,
                  .derivative_cost = 32},
};

/// Whether the value is an enumerator. The compiler warns of one that has no line here.
constexpr bool is_enumerator(Activation activation) {
  switch (activation) {
    case Activation::none:
    case Activation::relu:
    case Activation::gelu:
    case Activation::gelu_tanh:
    case Activation::silu:
    case Activation::hardswish:
    case Activation::mish:
    case Activation::leaky_relu:
    case Activation::tanh:
    case Activation::sigmoid:
      return true;
  }
  return false;
}

constexpr bool in_order() {
  for (std::size_t i = 0; i < kRows.size(); ++i)
    if (static_cast<std::size_t>(kRows[i].value) != i) return false;
  return true;
}
static_assert(in_order(), "rows are found by their place");
static_assert(!is_enumerator(Activation{kRows.size()}), "every activation has a row");

}  // namespace

std::span<const ActivationRow> activation_rows() { return kRows; }
const ActivationRow& row_of(Activation activation) { return kRows.at(static_cast<std::size_t>(activation)); }

std::string activation_names() {
  std::string names;
  for (const ActivationRow& row : kRows) {
    if (row.value == Activation::none) continue;
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

double function_error(const ActivationRow& row, double z, DType sums, double u) {
  const ElementFormat& format = element_format(sums);
  // Kernels take e^t for 0 below -87 in float32, and below -708 in float64 (compiler/cpu/activation_ir.cpp):
  // just above the smallest normal number.
  const double least_exp = 2 * format.smallest_normal;
  if (row.value_units == 0) return 0;
  const double magnitude = std::fabs(row.function(z));
  // Where the function is 0, z² may be infinite.
  const double rounding = magnitude == 0 ? 0 : (row.value_units + row.value_units_z2 * z * z) * u * magnitude;
  return rounding + least_exp * std::fabs(z) + format.least;
}

}  // namespace sparsekiln
