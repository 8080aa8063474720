#include "oracle/reference_epilogue.h"

#include <doctest/doctest.h>

namespace sparsekiln {
namespace {

TEST_CASE("an epilogue is its formula, and exact while nothing is rounded") {
  const Epilogue all{
      .scale = true, .bias = true, .activation = Activation::relu, .glu = true, .residual = true};
  const EpilogueOperands operands{
      .alpha = 0.5, .beta = -2, .y = 4, .read = {{"bias", 3}, {"v_bias", -1}, {"residual", 7}}};
  const Bounded y = apply(all, operands, {10, 0}, {6, 0});
  CHECK(y.value == 8.0 * 2.0 + 7 - 2 * 4);
  CHECK(y.error == 0);
  CHECK(apply(all, operands, {-10, 0}, {6, 0}).value == 7 - 2 * 4);
  CHECK(apply({}, {}, {10, 0.25}, {}).error == 0.25);
  CHECK(apply({.bias = true}, {.read = {{"bias", 0.1}}}, {1, 0}, {}).error > 0);
}

TEST_CASE("a scale of rows multiplies alpha, which is rounded to float32 once, each weight by its own") {
  EpilogueOperands operands{.alpha = 0.5,
                            .read = {{"bias", 1}, {"v_bias", 2}, {"row_scale", 4}, {"v_row_scale", -2}}};
  const Epilogue epilogue{
      .scale = true, .bias = true, .activation = Activation::relu, .glu = true, .row_scale = true};
  const Bounded y = apply(epilogue, operands, {3, 0}, {5, 0});
  CHECK(y.value == (0.5 * 4 * 3 + 1) * (0.5 * -2 * 5 + 2));
  CHECK(y.error == 0);
  operands = {.alpha = 0x1.fffffep-1, .read = {{"row_scale", 0x1.fffffep-1}}};
  CHECK(apply({.scale = true, .row_scale = true}, operands, {1, 0}, {}).value == 0x1.fffffcp-1);
  CHECK(apply({.row_scale = true}, {.read = {{"row_scale", 3}}}, {7, 0}, {}).value == 21);
}

TEST_CASE("an edge bias scales what alpha has scaled, and its error") {
  const Epilogue epilogue{.scale = true, .activation = Activation::relu, .residual = true, .edge_bias = true};
  const EpilogueOperands operands{
      .alpha = 0.5, .beta = -2, .y = 4, .read = {{"edge_gain", -3}, {"edge_bias", 4}, {"residual", 7}}};
  CHECK(apply(epilogue, operands, {-10, 0}, {}).value == 0.5 * -10 * -3 + 4 + 7 - 2 * 4);
  CHECK(apply(epilogue, operands, {10, 0}, {}).value == 7 - 2 * 4);
  CHECK(apply({.edge_bias = true}, {.read = {{"edge_gain", -3}, {"edge_bias", 0}}}, {10, 0.25}, {}).error ==
        doctest::Approx(0.75));
}

TEST_CASE("the error of a sum is propagated through an epilogue") {
  const EpilogueOperands operands{.alpha = 4};
  const double error = apply({.scale = true}, operands, {1, 0.5}, {}).error;
  CHECK(error >= 2);
  CHECK(error < 2.001);
  // In a product of two factors, each scales the error of the other.
  const Epilogue glu{.activation = Activation::relu, .glu = true};
  CHECK(apply(glu, {}, {3, 0.5}, {5, 0}).error == doctest::Approx(2.5).epsilon(1e-5));
  CHECK(apply(glu, {}, {3, 0}, {5, 0.5}).error == doctest::Approx(1.5).epsilon(1e-5));
}

TEST_CASE("the error of z is propagated through an activation by its Lipschitz constant") {
  const auto error = [](Activation activation) {
    return apply({.activation = activation}, {}, {1, 0.5}, {}).error;
  };
  CHECK(error(Activation::silu) == doctest::Approx(0.55).epsilon(1e-5));
  CHECK(error(Activation::gelu) == doctest::Approx(0.565).epsilon(1e-5));
}

}  // namespace
}  // namespace sparsekiln
