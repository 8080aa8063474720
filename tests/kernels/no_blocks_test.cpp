#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <sparsekiln/error.h>

#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

constexpr std::int64_t kN = 3;
constexpr std::int64_t kFeatures = 32;

Layout without_blocks() { return Layout::from_mask(2, 2, std::vector<std::uint8_t>(4, 0)); }

/// An operation on a layout without blocks, with operands that fit it.
class EmptyProduct {
 public:
  explicit EmptyProduct(Operation operation, Epilogue epilogue = {}, bool bias_gradient = false)
      : operation_(operation),
        kernel_(compile(without_blocks(), options(operation, epilogue, bias_gradient))),
        memory_(Suite::current().device(), 3 * kBytes) {
    const std::vector<float> nans(3 * kBytes / sizeof(float), std::numeric_limits<float>::quiet_NaN());
    memory_.copy_in(nans.data());
  }

  /// Launches with this weight, or gradient of it, wherever the operation takes one. Empty if that is
  /// accepted.
  std::string refusal_of(const TensorView& weight) {
    Operands operands;
    operands.w = operands.v = operands.dw = weight;
    operands.x = operands.dy = at(0);
    operands.y = operands.dx = at(1);
    operands.dbias = view(at(2).data, DType::f32, kFeatures);
    try {
      kernel_(operands);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::invalid_argument);
      return error.what();
    }
    return {};
  }
  /// Whether y or dx is written, and is all zeros.
  [[nodiscard]] bool wrote_zeros() const {
    Suite::current().device()->synchronize();
    std::vector<float> all(memory_.bytes() / sizeof(float));
    memory_.copy_out(all.data());
    const auto begin = all.begin() + kBytes / sizeof(float);
    return std::all_of(begin, begin + kN * kFeatures, [](float value) { return value == 0; });
  }

 private:
  static constexpr std::size_t kBytes = 1024;

  static Options options(Operation operation, const Epilogue& epilogue, bool bias_gradient) {
    Options options = Suite::current().options({16, 16}, kN);
    options.operation = operation;
    options.epilogue = epilogue;
    options.bias_gradient = bias_gradient;
    return options;
  }
  [[nodiscard]] TensorView at(std::size_t region) const {
    return view(static_cast<std::byte*>(memory_.data()) + region * kBytes, DType::f32, kN, kFeatures);
  }

  Operation operation_;
  Kernel kernel_;
  DeviceMemory memory_;
};

TensorView weight_of(std::int64_t blocks, std::int64_t out = 16, std::int64_t in = 16,
                     DType dtype = DType::f32) {
  return view(nullptr, dtype, blocks, out, in);
}

const std::vector<Operation>& operations() {
  static const std::vector all{Operation::forward, Operation::grad_input, Operation::grad_weight};
  return all;
}

}  // namespace

TEST_CASE("a kernel without blocks computes zeros without a weight, and with one that has no blocks") {
  for (const Operation operation : operations()) {
    CAPTURE(name(operation));
    for (const TensorView& weight : {TensorView{}, weight_of(0)}) {
      EmptyProduct product(operation);
      CHECK(product.refusal_of(weight) == "");
      if (operation != Operation::grad_weight) CHECK(product.wrote_zeros());
    }
  }
}

TEST_CASE("a GLU without blocks is given neither weight") {
  EmptyProduct product(Operation::forward, {.activation = Activation::silu, .glu = true});
  CHECK(product.refusal_of({}) == "");
  CHECK(product.wrote_zeros());
}

TEST_CASE("the gradient of a bias needs no block of the weight") {
  EmptyProduct product(Operation::grad_weight, {}, true);
  CHECK(product.refusal_of({}) == "");
  Suite::current().device()->synchronize();
}

TEST_CASE("a kernel without blocks refuses weights of another shape or type") {
  for (const Operation operation : operations()) {
    CAPTURE(name(operation));
    EmptyProduct product(operation);
    const std::string weight = operation == Operation::grad_weight ? "dw" : "w";
    CHECK(product.refusal_of(weight_of(3)) ==
          weight +
              ": rank 3 and shape [3, 16, 16], but the kernel takes dense [0, 16, 16], or no such operand");
    CHECK(product.refusal_of(weight_of(0, 8)).starts_with(weight + ": rank 3 and shape [0, 8, 16]"));
    CHECK(product.refusal_of(view(nullptr, DType::f32, 0, 16)).starts_with(weight + ": rank 2"));
    CHECK(product.refusal_of(weight_of(0, 16, 16, DType::f16)) ==
          weight + ": its type is f16, the kernel was compiled for f32");
  }
}
