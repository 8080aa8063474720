#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "runtime/test_launch.h"
#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

constexpr std::array kOperations{Operation::forward, Operation::grad_input, Operation::grad_weight};

/// Options of layers whose rows have a number of bytes that is not a multiple of 16.
Options cut_options(Operation operation, Batch batch, Precision precision) {
  Options options = Suite::current().options({16, 16}, batch, precision);
  options.operation = operation;
  options.in_features = 29;
  options.out_features = 43;
  options.epilogue.residual = operation == Operation::forward;
  if (operation != Operation::forward) options.derivative = Activation::relu;
  return options;
}

/// Launches with as many seeds as it takes to get all kinds of strides.
void check_launches(const Layout& layout, const Options& options, const TestLaunchShape& launch) {
  const Kernel kernel = compile(layout, options);
  const Problem problem = make_problem(layout, options);
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const auto test_launch = make_test_launch(problem, launch, Inputs::small_integers, seed);
    const auto layer = test_launch->place(kernel, Suite::current().device());
    layer->launch(kernel);
    Suite::current().device()->synchronize();
    const CheckResult check_result = layer->judge(kernel.binary().plan, nullptr);
    CAPTURE(name(options.operation));
    CAPTURE(name(options.dtype));
    CAPTURE(name(options.order));
    CAPTURE(to_string(options.batch));
    CAPTURE(seed);
    CHECK_MESSAGE(check_result.ok, check_result.first_failure);
  }
}

std::string refusal_of(const Kernel& kernel, const Operands& operands) {
  try {
    kernel(operands);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return "(nothing was thrown)";
}

/// Device memory that holds integers from 1 to 5 at first.
class Floats {
 public:
  explicit Floats(std::size_t count) : memory_(Suite::current().device(), count * sizeof(float)) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(1 + i * i % 5);
    memory_.copy_in(values.data());
  }
  [[nodiscard]] float* data() const { return static_cast<float*>(memory_.data()); }
  [[nodiscard]] std::vector<float> fetch() const {
    Suite::current().device()->synchronize();
    std::vector<float> values(memory_.bytes() / sizeof(float));
    memory_.copy_out(values.data());
    return values;
  }

 private:
  DeviceMemory memory_;
};

}  // namespace

TEST_CASE("a batch of one takes rows of any length and any stride") {
  const Layout layout = patterns::random(3, 2, 0.7, 2);
  for (const Precision& precision : Suite::current().precisions())
    for (const Operation operation : kOperations)
      for (const Batch batch : {Batch(1), Batch::up_to(40)})
        check_launches(layout, cut_options(operation, batch, precision), {.n = 1, .pairs = 3});
}

TEST_CASE("a single feature of feature-major activations takes any stride and any batch") {
  for (const Operation operation : kOperations) {
    Options options = Suite::current().options({8, 8}, 5);
    options.operation = operation;
    options.order = ActivationOrder::feature_major;
    options.in_features = 1;
    options.out_features = 1;
    check_launches(Layout::from_mask(1, 1, std::vector<std::uint8_t>{1}), options, {.n = 5, .pairs = 2});
  }
}

TEST_CASE("a single feature of batch-major activations takes any stride within its rows") {
  const Layout layout = Layout::from_mask(1, 1, std::vector<std::uint8_t>{1});
  for (const Operation operation : kOperations) {
    Options options = Suite::current().options({8, 8}, 5);
    options.operation = operation;
    options.in_features = 1;
    options.out_features = 1;
    options.alignment = 4;
    check_launches(layout, options, {.n = 5, .pairs = 2});
  }
}

TEST_CASE("matrices of one row each are one product, or a launch each, whatever is between their rows") {
  constexpr std::int64_t kMatrices = 3;
  constexpr std::int64_t kIn = 29;
  constexpr std::int64_t kOut = 43;
  constexpr std::int64_t kApart = 64;
  const Layout layout = patterns::random(3, 2, 0.7, 2);
  const Floats x(kMatrices * kApart);
  const Floats w(static_cast<std::size_t>(layout.blocks()) * 256);
  std::vector<float> first;
  for (const Batch batch : {Batch(kMatrices), Batch(1), Batch::up_to(8)})
    for (const std::int64_t stride : {std::int64_t{0}, kIn, std::numeric_limits<std::int64_t>::max()}) {
      CAPTURE(to_string(batch));
      CAPTURE(stride);
      Options options = cut_options(Operation::forward, batch, {});
      options.epilogue = {};
      const Floats y(kMatrices * kApart);
      TensorView from = view(x.data(), DType::f32, kMatrices, 1, kIn);
      TensorView to = view(y.data(), DType::f32, kMatrices, 1, kOut);
      from.stride[0] = to.stride[0] = kApart;
      from.stride[1] = to.stride[1] = stride;
      compile(layout,
              options)({.x = from, .w = view(w.data(), DType::f32, layout.blocks(), 16, 16), .y = to});
      const std::vector<float> result = y.fetch();
      if (first.empty()) {
        compile(layout, options)({.x = strided_view(x.data(), DType::f32, kMatrices, kIn, kApart),
                                  .w = view(w.data(), DType::f32, layout.blocks(), 16, 16),
                                  .y = strided_view(y.data(), DType::f32, kMatrices, kOut, kApart)});
        first = y.fetch();
      }
      CHECK(result == first);
    }
}

TEST_CASE("one row that is read for every matrix of a batch has a stride of 0") {
  const Layout layout = patterns::block_diagonal(2, 2, 2);
  const Floats x(32);
  const Floats w(2 * 256);
  const Floats y(2 * 32);
  TensorView from = view(x.data(), DType::f32, 2, 1, 32);
  from.stride[0] = 0;
  compile(layout, Suite::current().options({16, 16}, 1))(
      {.x = from, .w = view(w.data(), DType::f32, 2, 16, 16), .y = view(y.data(), DType::f32, 2, 1, 32)});
  const std::vector<float> result = y.fetch();
  CHECK(std::vector(result.begin(), result.begin() + 32) == std::vector(result.begin() + 32, result.end()));
}

TEST_CASE("pairs with a batch of one have the same gradient as matrices of a batch and as separate pairs") {
  const Layout layout = patterns::block_diagonal(2, 2, 2);
  Options options = Suite::current().options({16, 16}, 1);
  options.operation = Operation::grad_weight;
  const Kernel kernel = compile(layout, options);
  const Floats x(3 * 64);
  const Floats dy(3 * 64);
  const Floats dw(2 * 256);
  const auto row = [](const Floats& memory, std::size_t number, std::int64_t stride) {
    return strided_view(memory.data() + number * 64, DType::f32, 1, 32, stride);
  };
  const auto gradient = [&](const std::vector<ActivationPair>& pairs) {
    kernel({.dw = view(dw.data(), DType::f32, 2, 16, 16), .pairs = pairs});
    return dw.fetch();
  };
  const std::vector<float> wanted = gradient({{.x = row(x, 0, 32), .dy = row(dy, 0, 32)},
                                              {.x = row(x, 1, 32), .dy = row(dy, 1, 32)},
                                              {.x = row(x, 2, 32), .dy = row(dy, 2, 32)}});
  TensorView two_x = view(x.data(), DType::f32, 2, 1, 32);
  TensorView two_dy = view(dy.data(), DType::f32, 2, 1, 32);
  two_x.stride[0] = two_dy.stride[0] = 64;
  CHECK(gradient({{.x = two_x, .dy = two_dy}, {.x = row(x, 2, 7), .dy = row(dy, 2, -1)}}) == wanted);
}

TEST_CASE("a single block of a weight may have any stride to the next") {
  const Layout layout = Layout::from_mask(1, 1, std::vector<std::uint8_t>{1});
  const Floats x(32);
  const Floats w(256);
  const Floats y(32);
  TensorView weight = view(w.data(), DType::f32, 1, 16, 16);
  weight.stride[0] = 7;
  CHECK_NOTHROW(compile(layout, Suite::current().options({16, 16}, 2))(
      {.x = view(x.data(), DType::f32, 2, 16), .w = weight, .y = view(y.data(), DType::f32, 2, 16)}));
  Suite::current().device()->synchronize();
}

TEST_CASE("negative extents, and more batch rows than can be counted, are refused") {
  const Layout layout = patterns::block_diagonal(2, 2, 2);
  const Kernel kernel = compile(layout, Suite::current().options({16, 16}, Batch::up_to(4)));
  const Floats memory(4096);
  float* const begin = memory.data();
  const auto operands = [&](std::int64_t matrices, std::int64_t n) {
    return Operands{.x = view(begin, DType::f32, matrices, n, 32),
                    .w = view(begin + 1024, DType::f32, 2, 16, 16),
                    .y = view(begin + 2048, DType::f32, matrices, n, 32)};
  };
  CHECK(refusal_of(kernel, operands(-1, -1)).starts_with("x: rank 3 and shape [-1, -1, 32]"));
  CHECK(refusal_of(kernel, operands(-2, 1)).starts_with("x: "));
  // 2^32 matrices of 2^32 batch rows: their number is 0 in 64 bits.
  Operands many = operands(std::int64_t{1} << 32, std::int64_t{1} << 32);
  many.x.stride[0] = many.y.stride[0] = std::int64_t{1} << 37;
  CHECK(refusal_of(kernel, many).starts_with("x: a batch of 4294967296"));
  Suite::current().device()->synchronize();
}
