#include "compiler/activation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <doctest/doctest.h>

namespace sparsekiln {
namespace {

constexpr double kFar = 40;  ///< beyond it every derivative is constant to float64's last digit

TEST_CASE("a row's Lipschitz constant bounds its derivative, and by no more than 5 percent too much") {
  for (const ActivationRow& row : activation_rows()) {
    CAPTURE(row.name);
    double largest = 0;
    for (double z = -kFar; z <= kFar; z += 1e-4) largest = std::max(largest, std::fabs(row.derivative(z)));
    CHECK(row.lipschitz >= largest);
    CHECK(row.lipschitz <= 1.05 * largest);
  }
}

TEST_CASE("a row's Lipschitz constant bounds how far its function moves") {
  constexpr double kStep = 1e-3;
  for (const ActivationRow& row : activation_rows()) {
    CAPTURE(row.name);
    double fastest = 0;
    for (double z = -kFar; z <= kFar; z += kStep)
      fastest = std::max(fastest, std::fabs(row.function(z + kStep) - row.function(z)) / kStep);
    CHECK(row.lipschitz >= fastest * (1 - 1e-9));
  }
}

TEST_CASE("derivatives of activations are what finite differences give, in float64") {
  constexpr double kStep = 1e-5;
  for (const ActivationRow& row : activation_rows())
    for (double z = -9.03; z < 9; z += 0.117) {
      CAPTURE(row.name);
      CAPTURE(z);
      const double difference = (row.function(z + kStep) - row.function(z - kStep)) / (2 * kStep);
      CHECK(std::fabs(row.derivative(z) - difference) < 1e-9);
    }
}

TEST_CASE("a derivative that may be taken at the result is the same there") {
  for (const ActivationRow& row : activation_rows()) {
    if (!row.derivative_from_result) continue;
    CAPTURE(row.name);
    for (double z = -9.03; z < 9; z += 0.117) CHECK(row.derivative(row.function(z)) == row.derivative(z));
  }
}

TEST_CASE("the activations pass through known values") {
  const auto at_one = [](Activation activation) { return row_of(activation).function(1); };
  CHECK(row_of(Activation::relu).function(-3) == 0);
  CHECK(row_of(Activation::relu).function(3) == 3);
  CHECK(at_one(Activation::silu) == doctest::Approx(0.7310585786300049).epsilon(1e-14));
  CHECK(at_one(Activation::gelu) == doctest::Approx(0.8413447460685429).epsilon(1e-14));
  CHECK(at_one(Activation::gelu_tanh) == doctest::Approx(0.8411919906082768).epsilon(1e-14));
  CHECK(at_one(Activation::hardswish) == doctest::Approx(0.6666666666666666).epsilon(1e-14));
  CHECK(at_one(Activation::mish) == doctest::Approx(0.8650983882673103).epsilon(1e-14));
  CHECK(at_one(Activation::leaky_relu) == doctest::Approx(1.0).epsilon(1e-14));
  CHECK(at_one(Activation::tanh) == doctest::Approx(0.7615941559557649).epsilon(1e-14));
  CHECK(at_one(Activation::sigmoid) == doctest::Approx(0.7310585786300049).epsilon(1e-14));
}

TEST_CASE("hardswish of the largest numbers is the number itself") {
  constexpr double kLargest = std::numeric_limits<double>::max();
  CHECK(row_of(Activation::hardswish).function(kLargest) == kLargest);
  CHECK(row_of(Activation::hardswish).function(-kLargest) == 0);
}

TEST_CASE("the error of a function is that of the type of the sums, where results are small, too") {
  const ActivationRow& silu = row_of(Activation::silu);
  constexpr double kFarBelow = -200;  // e^-200 is 0 in float32, and a normal number in float64
  const double value = std::fabs(silu.function(kFarBelow));
  CHECK(value > 0);
  CHECK(function_error(silu, kFarBelow, DType::f64, 0x1p-52) < 1e-9 * value);
  CHECK(function_error(silu, kFarBelow, DType::f32, 0x1p-24) > value);
  CHECK(function_error(silu, -709, DType::f64, 0x1p-52) > std::fabs(silu.function(-709)));
}

TEST_CASE("a NaN stays a NaN through every activation") {
  for (const ActivationRow& row : activation_rows()) {
    CAPTURE(row.name);
    CHECK(std::isnan(row.function(std::numeric_limits<double>::quiet_NaN())));
  }
}

TEST_CASE("every activation is found by its name, and listed but for none") {
  std::string listed;
  for (const ActivationRow& row : activation_rows()) {
    CAPTURE(row.name);
    CHECK(&row_of(row.value) == &row);
    CHECK(parse_activation(row.name) == row.value);
    if (row.value == Activation::none) continue;
    if (!listed.empty()) listed += ", ";
    listed += row.name;
  }
  CHECK(activation_names() == listed);
}

}  // namespace
}  // namespace sparsekiln
