#include "oracle/convolution_reference.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/patterns.h>

#include "compiler/element.h"
#include "compiler/sddmm.h"
#include "compiler/spmm.h"
#include "oracle/sddmm_check.h"
#include "oracle/spmm_check.h"
#include "oracle/spmm_inputs.h"
#include "oracle/spmm_reference.h"

namespace sparsekiln {
namespace {

constexpr std::int64_t kImages = 2;

Layout layout_of_blocks() { return patterns::random(3, 5, 0.5, 2); }

Problem problem_of(const std::string& convolution, Operation operation = Operation::forward) {
  Problem problem;
  problem.operation = operation;
  problem.layout = layout_of_blocks();
  problem.block = {8, 16};
  problem.batch = kImages;
  problem.convolution = parse_convolution(convolution);
  validate(problem);
  return problem;
}

std::vector<std::string> geometries() {
  std::string digits;  // of each block
  for (std::int32_t block = 0; block < layout_of_blocks().blocks(); ++block)
    digits += std::vector<std::string>{"10", "11", "01", "00"}[static_cast<std::size_t>(block % 4)];
  return {"kernel=3x3 padding=1 input=5x6",
          "kernel=3x3 stride=2 padding=1 input=7x8",
          "kernel=2x3 stride=3x1 dilation=2 padding=0:1x2:0 input=6x9",
          "kernel=5 padding=6 dilation=2 input=4",
          "kernel=2x3x2 stride=1x2x2 padding=1 input=3x4x5",
          "kernel=1x1 stride=2 input=5x5",
          "kernel=3x3 stride=2 padding=1 transposed output-padding=1x0 input=3x4",
          "kernel=2x3 stride=3x1 dilation=2 padding=0:1x2:0 transposed input=3x4",
          "kernel=3x3 padding=1 input=5x6 taps=111110000",
          "kernel=2 stride=3 transposed input=7 taps=" + digits};
}

/// One block of 8 features that has weights for its first features alone, so that a convolution of one
/// dimension is that of numbers.
struct Numbers {
  explicit Numbers(const std::string& convolution, std::vector<float> weights, Operation operation)
      : w(weights.size() * 64) {
    problem.operation = operation;
    problem.layout = Layout::from_mask(1, 1, std::vector<std::uint8_t>{1});
    problem.block = {8, 8};
    problem.convolution = parse_convolution(convolution);
    for (std::size_t tap = 0; tap < weights.size(); ++tap) w[tap * 64] = weights[tap];
  }
  /// The first feature of each row of y.
  std::vector<double> operator()(const std::vector<float>& values) const {
    std::vector<float> x(values.size() * 8);
    for (std::size_t row = 0; row < values.size(); ++row) x[row * 8] = values[row];
    const Spmm product(problem);
    const Reference all = reference(product, {x.data(), w.data(), 8}, 0, product.y_rows(1), false);
    std::vector<double> y;
    for (std::size_t row = 0; row * 8 < all.y.size(); ++row) y.push_back(all.y[row * 8]);
    return y;
  }
  Problem problem;
  std::vector<float> w;  ///< [taps][8][8]
};

TEST_CASE("a convolution of numbers and its gradient are those computed by hand") {
  const Numbers same("kernel=3 padding=1 input=5", {1, 10, 100}, Operation::forward);
  CHECK(same({1, 2, 3, 4, 5}) == std::vector<double>{210, 321, 432, 543, 54});
  const Numbers strided("kernel=2 stride=2 dilation=3 padding=1:2 input=6", {1, 10}, Operation::forward);
  CHECK(strided({1, 2, 3, 4, 5, 6}) == std::vector<double>{30, 52, 4});  // x[-1, 2], x[1, 4], x[3, 6]
  const Numbers gradient("kernel=2 stride=2 dilation=3 padding=1:2 input=6", {1, 10}, Operation::grad_input);
  CHECK(gradient({1, 2, 3}) == std::vector<double>{0, 2, 10, 3, 20, 0});
  const Numbers gaps("kernel=1 stride=3 input=7", {5}, Operation::grad_input);
  CHECK(gaps({1, 2, 3}) == std::vector<double>{5, 0, 0, 10, 0, 0, 15});
}

TEST_CASE("a transposed convolution of numbers and its gradient are those computed by hand") {
  const std::string geometry = "kernel=2 stride=2 dilation=3 padding=1:2 transposed output-padding=1 input=3";
  const Numbers forward(geometry, {1, 10}, Operation::forward);
  CHECK(forward({1, 2, 3}) == std::vector<double>{0, 2, 10, 3, 20, 0});
  const Numbers gradient(geometry, {1, 10}, Operation::grad_input);
  CHECK(gradient({1, 2, 3, 4, 5, 6}) == std::vector<double>{30, 52, 4});
}

TEST_CASE("features beyond a cut take no part in a convolution, whatever their weights are") {
  for (const Operation operation : {Operation::forward, Operation::grad_input}) {
    Problem problem;
    problem.operation = operation;
    problem.layout = Layout::from_mask(1, 1, std::vector<std::uint8_t>{1});
    problem.block = {8, 8};
    problem.convolution = parse_convolution("kernel=2 input=3");
    problem.cut_in_features = 2;
    problem.cut_out_features = 1;
    validate(problem);
    std::vector<float> w(2 * 64, std::numeric_limits<float>::quiet_NaN());
    w[0] = 1, w[1] = 10, w[64] = 100, w[65] = 1000;  // of both inputs, at both taps
    const Spmm product(problem);
    const auto of = [&](const std::vector<float>& x) {
      return reference(product, {x.data(), w.data(), product.in_features()}, 0, product.y_rows(1), false).y;
    };
    if (operation == Operation::forward)
      CHECK(of({1, 2, 3, 4, 5, 6}) == std::vector<double>{1 + 20 + 300 + 4000, 3 + 40 + 500 + 6000});
    else
      CHECK(of({2, 3}) == std::vector<double>{2, 20, 200 + 3, 2000 + 30, 300, 3000});
  }
}

TEST_CASE("a convolution of numbers has no product for a tap that the mask takes") {
  const std::string geometry = "kernel=3 padding=1 input=5 taps=101";
  const Numbers forward(geometry, {1, 100}, Operation::forward);
  CHECK(forward({1, 2, 3, 4, 5}) == std::vector<double>{200, 301, 402, 503, 4});
  const Numbers gradient(geometry, {1, 100}, Operation::grad_input);
  CHECK(gradient({1, 2, 3, 4, 5}) == std::vector<double>{2, 103, 204, 305, 400});
}

/// The gradients of a weight of numbers, by hand below, and of its bias.
struct NumberGradients {
  std::vector<double> dw;
  double dbias = 0;
};
NumberGradients gradients_of(const std::string& convolution, const std::vector<float>& x,
                             const std::vector<float>& dy) {
  Problem problem = problem_of(convolution, Operation::grad_weight);
  problem.layout = Layout::from_mask(1, 1, std::vector<std::uint8_t>{1});
  problem.block = {8, 8};
  problem.bias_gradient = true;
  validate(problem);
  const auto rows = [](const std::vector<float>& values) {
    std::vector<std::byte> bytes(values.size() * 8 * sizeof(float));
    for (std::size_t row = 0; row < values.size(); ++row)
      std::memcpy(bytes.data() + row * 8 * sizeof(float), &values[row], sizeof(float));
    return bytes;
  };
  SddmmInputs inputs;
  inputs.n = 1;
  inputs.x_stride = inputs.dy_stride = 8;
  inputs.pairs.push_back({rows(x), rows(dy), {}});
  const SddmmReference all = reference(Sddmm(problem), inputs);
  NumberGradients gradients{{}, all.dbias[0]};
  for (std::size_t at = 0; at < all.dw.size(); at += 64) gradients.dw.push_back(all.dw[at]);
  return gradients;
}

TEST_CASE("the gradient of a weight of numbers, and of its bias, are those computed by hand") {
  const NumberGradients plain = gradients_of("kernel=2 stride=2 input=5", {1, 10, 100, 1000, 10000}, {1, 2});
  CHECK(plain.dw == std::vector<double>{201, 2010});
  CHECK(plain.dbias == 3);
  const NumberGradients transposed = gradients_of("kernel=2 stride=2 transposed output-padding=1 input=2",
                                                  {1, 2}, {1, 10, 100, 1000, 10000});
  CHECK(transposed.dw == std::vector<double>{201, 2010});
  CHECK(transposed.dbias == 11111);
  const NumberGradients masked = gradients_of("kernel=3 padding=1 input=3 taps=011", {1, 10, 100}, {1, 2, 3});
  CHECK(masked.dw == std::vector<double>{321, 210});
}

TEST_CASE("outside of x there is nothing, not even for a weight of Inf or NaN") {
  const float inf = std::numeric_limits<float>::infinity();
  const Numbers edge("kernel=3 padding=1 input=1", {inf, 2, std::numeric_limits<float>::quiet_NaN()},
                     Operation::forward);
  CHECK(edge({3}) == std::vector<double>{6});
  const Numbers gradient("kernel=3 padding=1 input=1", {inf, 2, inf}, Operation::grad_input);
  CHECK(gradient({3}) == std::vector<double>{6});
}

TEST_CASE("a NaN of x reaches what a tap reads it for, and nothing else") {
  const Numbers same("kernel=3 padding=1 input=5", {1, 10, 100}, Operation::forward);
  const std::vector<double> y = same({1, 2, std::numeric_limits<float>::quiet_NaN(), 4, 5});
  CHECK(y[0] == 210);
  for (const std::size_t at : {1, 2, 3}) CHECK(std::isnan(y[at]));
  CHECK(y[4] == 54);
}

TEST_CASE("the gradient of the input is the adjoint of the convolution, in any geometry") {
  for (const std::string& geometry : geometries()) {
    CAPTURE(geometry);
    const Spmm forward(problem_of(geometry));
    const Spmm backward(problem_of(geometry, Operation::grad_input));
    // Integers: all sums are exact.
    const HostInputs inputs = make_inputs(forward, kImages, Inputs::small_integers, 1);
    const HostInputs gradient = make_inputs(backward, kImages, Inputs::small_integers, 2, 0);
    HostOperands back = gradient.operands();
    back.w = inputs.w.data();
    const Reference y = reference(forward, inputs.operands(), 0, forward.y_rows(kImages), false);
    const Reference dx = reference(backward, back, 0, backward.y_rows(kImages), false);
    double by_y = 0;
    for (std::size_t i = 0; i < y.y.size(); ++i)
      by_y += y.y[i] * to_double(DType::f32, gradient.x.data(), static_cast<std::int64_t>(i));
    double by_x = 0;
    for (std::size_t i = 0; i < dx.y.size(); ++i)
      by_x += dx.y[i] * to_double(DType::f32, inputs.x.data(), static_cast<std::int64_t>(i));
    CHECK(by_y == by_x);
    CHECK(by_y != 0);
  }
}

TEST_CASE("a kernel of one tap without stride or padding is the linear layer of its positions") {
  Problem layer = problem_of("kernel=1x1 input=4x5");
  const Spmm convolution(layer);
  const HostInputs inputs = make_inputs(convolution, kImages, Inputs::random, 3);
  layer.convolution = {};
  layer.batch = kImages * 20;
  const Reference same = reference(Spmm(layer), inputs.operands(), 0, kImages * 20, true);
  const Reference y = reference(convolution, inputs.operands(), 0, kImages * 20, true);
  CHECK(y.y == same.y);
  CHECK(y.magnitude == same.magnitude);
}

TEST_CASE("any rows of y are those of all rows") {
  const Spmm product(problem_of(geometries()[1]));
  const HostInputs inputs = make_inputs(product, kImages, Inputs::random, 4);
  const Reference all = reference(product, inputs.operands(), 0, product.y_rows(kImages), true);
  const Reference some = reference(product, inputs.operands(), 11, 9, true);
  const auto width = static_cast<std::ptrdiff_t>(product.out_features());
  const auto part = [&](const std::vector<double>& of) {
    return std::vector<double>(of.begin() + 11 * width, of.begin() + 20 * width);
  };
  CHECK(some.y == part(all.y));
  CHECK(some.magnitude == part(all.magnitude));
}

/// A y that is right but for what `spoil` makes of the sums, judged.
template <class Spoil>
CheckResult judge(const Problem& problem, Inputs kind, const Spoil& spoil) {
  const Spmm product(problem);
  HostInputs inputs = make_inputs(product, kImages, kind, 5, product.in_features() + 8);
  if (kind == Inputs::small_integers) plant_non_finite(product, inputs, 6);
  Reference sums = reference(product, inputs.operands(), 0, product.y_rows(kImages), false);
  spoil(sums.y);
  PoisonedOutput output(product, kImages, product.out_features() + 8);
  for (std::int64_t row = 0; row < product.y_rows(kImages); ++row)
    for (std::int64_t o = 0; o < output.width(); ++o)
      store(problem.out_dtype, sums.y[static_cast<std::size_t>(row * output.width() + o)], output.y(),
            output.at(row, o));
  return check(product, inputs, output, Adder::float32);
}

TEST_CASE("right results of convolutions pass, of exact integers with Inf and NaN and of random numbers") {
  for (const std::string& geometry : geometries())
    for (const Operation operation : {Operation::forward, Operation::grad_input})
      for (const Inputs kind : {Inputs::small_integers, Inputs::random}) {
        CAPTURE(geometry);
        CAPTURE(name(operation));
        const CheckResult found = judge(problem_of(geometry, operation), kind, [](auto&) {});
        CHECK_MESSAGE(found.ok, found.first_failure);
      }
}

TEST_CASE("one wrong element of a convolution is found, whatever its row") {
  for (const std::string& geometry : geometries())
    for (const Operation operation : {Operation::forward, Operation::grad_input}) {
      CAPTURE(geometry);
      CAPTURE(name(operation));
      const Problem problem = problem_of(geometry, operation);
      for (const bool last : {false, true}) {
        const CheckResult found = judge(problem, Inputs::random, [&](std::vector<double>& y) {
          double& one = last ? y.back() : y[y.size() / 2];
          one = one + 0.25;
        });
        CHECK(found.wrong == 1);
      }
    }
}

TEST_CASE("an epilogue's operands have the rows of y") {
  Problem problem = problem_of(geometries()[1]);
  problem.epilogue = parse_epilogue("scale+bias+residual");
  const Spmm product(problem);
  const HostInputs inputs = make_inputs(product, kImages, Inputs::random, 7);
  CHECK(inputs.of("residual").n == product.y_rows(kImages));
  CHECK(inputs.y.n == product.y_rows(kImages));
  CHECK(inputs.x.size() == static_cast<std::size_t>(product.x_rows(kImages) * product.in_features()) * 4);
  problem = problem_of(geometries()[1], Operation::grad_input);
  problem.derivative = Activation::relu;
  const Spmm gradient(problem);
  CHECK(make_inputs(gradient, kImages, Inputs::random, 7).of("z").n == gradient.x_rows(kImages));
  CHECK(gradient.x_rows(kImages) == product.y_rows(kImages));
}

}  // namespace
}  // namespace sparsekiln
