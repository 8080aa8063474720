#include "oracle/reference_epilogue.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

namespace sparsekiln {
namespace {

constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu,
                                       Activation::gelu_tanh, Activation::silu};

TEST_CASE("derivatives of activations are what finite differences give, in float64") {
  constexpr double kStep = 1e-5;
  for (const Activation activation : kActivations)
    for (double z = -9.03; z < 9; z += 0.117) {
      CAPTURE(name(activation));
      CAPTURE(z);
      const double difference =
          (activate(activation, z + kStep) - activate(activation, z - kStep)) / (2 * kStep);
      CHECK(std::fabs(derivative(activation, z) - difference) < 1e-9);
    }
}

TEST_CASE("the activations pass through known values") {
  CHECK(activate(Activation::relu, -3) == 0);
  CHECK(activate(Activation::relu, 3) == 3);
  CHECK(activate(Activation::silu, 1) == doctest::Approx(0.7310585786300049).epsilon(1e-14));
  CHECK(activate(Activation::gelu, 1) == doctest::Approx(0.8413447460685429).epsilon(1e-14));
  CHECK(activate(Activation::gelu_tanh, 1) == doctest::Approx(0.8411919906082768).epsilon(1e-14));
  CHECK(std::isnan(activate(Activation::relu, std::numeric_limits<double>::quiet_NaN())));
}

TEST_CASE("an epilogue is its formula, and exact while nothing is rounded") {
  const Epilogue all{
      .scale = true, .bias = true, .activation = Activation::relu, .glu = true, .residual = true};
  const EpilogueOperands operands{.alpha = 0.5, .beta = -2, .bias = 3, .v_bias = -1, .residual = 7, .y = 4};
  const Bounded y = apply(all, operands, {10, 0}, {6, 0});
  CHECK(y.value == 8.0 * 2.0 + 7 - 2 * 4);
  CHECK(y.error == 0);
  CHECK(apply(all, operands, {-10, 0}, {6, 0}).value == 7 - 2 * 4);
  CHECK(apply({}, {}, {10, 0.25}, {}).error == 0.25);
  CHECK(apply({.bias = true}, {.bias = 0.1}, {1, 0}, {}).error > 0);
}

TEST_CASE("what a sum is off goes through an epilogue") {
  const EpilogueOperands operands{.alpha = 4};
  const double error = apply({.scale = true}, operands, {1, 0.5}, {}).error;
  CHECK(error >= 2);
  CHECK(error < 2.001);
  // Of a product of two, each weighs the other's error.
  const Epilogue glu{.activation = Activation::relu, .glu = true};
  CHECK(apply(glu, {}, {3, 0.5}, {5, 0}).error == doctest::Approx(2.5).epsilon(1e-5));
  CHECK(apply(glu, {}, {3, 0}, {5, 0.5}).error == doctest::Approx(1.5).epsilon(1e-5));
}

}  // namespace
}  // namespace sparsekiln
