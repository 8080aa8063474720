// The cell of an LSTM as an epilogue. The case list and the random problems have it with everything else;
// here is what only a cell has.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

constexpr std::int64_t kBatch = 5;

Layout square() { return patterns::watts_strogatz(6, 6, 0.4, 0.3, 2); }

Options cell_options(Operation operation, Epilogue epilogue, Precision precision = {}) {
  Options options = Suite::current().options({16, 16}, kBatch, precision);
  options.operation = operation;
  options.epilogue = epilogue;
  return options;
}

/// A float32 matrix on the device.
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t cols, double scale, std::uint64_t seed)
      : rows_(rows),
        cols_(cols),
        host_(static_cast<std::size_t>(rows * cols)),
        memory_(Suite::current().device(), host_.size() * sizeof(float)) {
    std::uint64_t state = seed;
    for (float& value : host_) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<float>(scale * (static_cast<double>(state >> 40) / (1 << 23) - 1));
    }
    memory_.copy_in(host_.data());
  }
  [[nodiscard]] TensorView view() const { return sparsekiln::view(memory_.data(), DType::f32, rows_, cols_); }
  [[nodiscard]] const std::vector<float>& fetch() {
    Suite::current().device()->synchronize();
    memory_.copy_out(host_.data());
    return host_;
  }
  [[nodiscard]] std::vector<float>& host() { return host_; }
  void send() { memory_.copy_in(host_.data()); }

 private:
  std::int64_t rows_, cols_;
  std::vector<float> host_;
  DeviceMemory memory_;
};

/// Two steps of a recurrent layer and their gradients: loss = Σ h of both steps times numbers.
class TwoSteps {
 public:
  TwoSteps()
      : layout_(square()),
        features_(16 * layout_.rows()),
        forward_(compile(layout_, cell_options(Operation::forward, {.lstm = true, .keep = true}))),
        backward_(compile(layout_, cell_options(Operation::grad_input, {.residual = true, .lstm = true}))),
        gradient_(compile(layout_, cell_options(Operation::grad_weight, {.lstm = true}))),
        w_(4 * layout_.blocks() * 16, 16, 0.2, 1) {}

  /// The loss, in float64 from h.
  double loss() {
    step(0, h_[0], c_[0]);
    step(1, h_[1], c_[1]);
    double sum = 0;
    for (int t = 0; t < 2; ++t) {
      const std::vector<float>& h = h_[t + 1].fetch();
      const std::vector<float>& dh = dh_[t].host();
      for (std::size_t i = 0; i < h.size(); ++i) sum += static_cast<double>(h[i]) * dh[i];
    }
    return sum;
  }

  /// Computes the gradients of all that the loss depends on.
  void gradients() {
    Matrix zeros_of_z(kBatch, 4 * features_, 0, 1);
    Matrix zeros(kBatch, features_, 0, 1);
    // From no step after the last one, to the last one, and on to the first.
    back(1, zeros_of_z, zeros, dz_[1], dc_[1]);
    back(0, dz_[1], dc_[1], dz_[0], dc_[0]);
    const ActivationPair pairs[] = {{.x = h_[0].view(), .dy = dz_[0].view()},
                                    {.x = h_[1].view(), .dy = dz_[1].view()}};
    gradient_({.dw = weight(dw_), .pairs = pairs});
  }

  Matrix& w() { return w_; }
  Matrix& projection(int t) { return projection_[t]; }
  Matrix& c_first() { return c_[0]; }
  Matrix& dw() { return dw_; }
  Matrix& dz(int t) { return dz_[t]; }
  Matrix& dc_first() { return dc_[0]; }

 private:
  TensorView weight(const Matrix& values) const {
    return sparsekiln::view(values.view().data, DType::f32, 4 * layout_.blocks(), 16, 16);
  }
  void step(int t, const Matrix& h, const Matrix& c) {
    forward_({.x = h.view(),
              .w = weight(w_),
              .y = h_[t + 1].view(),
              .projection = projection_[t].view(),
              .activations = activations_[t].view(),
              .c_before = c.view(),
              .c = c_[t + 1].view()});
  }
  void back(int t, const Matrix& dz_after, const Matrix& dc, const Matrix& dz, const Matrix& dc_before) {
    backward_({.w = weight(w_),
               .dy = dz_after.view(),
               .dx = dz.view(),
               .residual = dh_[t].view(),
               .activations = activations_[t].view(),
               .c_before = c_[t].view(),
               .c = c_[t + 1].view(),
               .dc = dc.view(),
               .dc_before = dc_before.view()});
  }
  std::deque<Matrix> matrices(int count, std::int64_t width, double scale, std::uint64_t seed) const {
    std::deque<Matrix> made;
    for (int i = 0; i < count; ++i)
      made.emplace_back(kBatch, width, scale, seed + static_cast<std::uint64_t>(i));
    return made;
  }

  Layout layout_;
  std::int64_t features_;
  Kernel forward_;
  Kernel backward_;
  Kernel gradient_;
  Matrix w_;
  std::deque<Matrix> h_ = matrices(3, features_, 0.5, 10);
  std::deque<Matrix> c_ = matrices(3, features_, 0.5, 20);
  std::deque<Matrix> projection_ = matrices(2, 4 * features_, 0.7, 30);
  std::deque<Matrix> activations_ = matrices(2, 4 * features_, 0, 40);
  std::deque<Matrix> dh_ = matrices(2, features_, 1, 50);
  std::deque<Matrix> dz_ = matrices(2, 4 * features_, 0, 60);
  std::deque<Matrix> dc_ = matrices(2, features_, 0, 70);
  Matrix dw_{4 * layout_.blocks() * 16, 16, 0, 80};
};

/// Compares a gradient with the central difference of the loss, in one direction of all elements.
void check_difference(TwoSteps& steps, Matrix& variable, Matrix& gradient) {
  const std::vector<float> dv = gradient.fetch();
  double norm = 0;
  for (const float value : dv) norm += static_cast<double>(value) * value;
  REQUIRE(norm > 0);
  const std::vector<float> at = variable.host();
  const double step = 1e-2 / std::sqrt(norm);
  double losses[2];
  for (int side = 0; side < 2; ++side) {
    for (std::size_t i = 0; i < at.size(); ++i)
      variable.host()[i] = static_cast<float>(at[i] + (side == 0 ? step : -step) * dv[i]);
    variable.send();
    losses[side] = steps.loss();
  }
  variable.host() = at;
  variable.send();
  // Along the gradient the loss grows by its squared norm.
  CHECK((losses[0] - losses[1]) / (2 * step) == doctest::Approx(norm).epsilon(2e-3));
}

}  // namespace

TEST_CASE("gradients of two steps of an LSTM are those of finite differences") {
  TwoSteps steps;
  static_cast<void>(steps.loss());
  steps.gradients();
  check_difference(steps, steps.w(), steps.dw());
  check_difference(steps, steps.projection(0), steps.dz(0));
  check_difference(steps, steps.projection(1), steps.dz(1));
  check_difference(steps, steps.c_first(), steps.dc_first());
}

TEST_CASE("c may be where c_before is, and dc_before where dc is, and neither anywhere else that is read") {
  const Layout layout = square();
  const std::int64_t features = 16 * layout.rows();
  const Kernel forward = compile(layout, cell_options(Operation::forward, {.lstm = true}));
  Matrix x(kBatch, features, 1, 1);
  Matrix w(4 * layout.blocks() * 16, 16, 0.2, 2);
  Matrix projection(kBatch, 4 * features, 1, 3);
  Matrix c(kBatch, features, 1, 4);
  Matrix c_after(kBatch, features, 0, 5);
  Matrix y(kBatch, features, 0, 6);
  Matrix y_in_place(kBatch, features, 0, 6);
  Operands operands{.x = x.view(),
                    .w = sparsekiln::view(w.view().data, DType::f32, 4 * layout.blocks(), 16, 16),
                    .y = y.view(),
                    .projection = projection.view(),
                    .c_before = c.view(),
                    .c = c_after.view()};
  forward(operands);
  operands.y = y_in_place.view();
  operands.c = c.view();
  forward(operands);
  CHECK(y.fetch() == y_in_place.fetch());
  CHECK(c.fetch() == c_after.fetch());
  const auto refusal = [&](const Operands& given) -> std::string {
    try {
      forward(given);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  operands.c = x.view();
  CHECK(refusal(operands).starts_with("c: it overlaps x,"));
  operands.c = y_in_place.view();
  CHECK(refusal(operands).starts_with("c: it overlaps y,"));
  operands.c = c_after.view();
  operands.projection = TensorView();
  CHECK(refusal(operands).starts_with("projection: it was not given"));
  operands.projection = c.view();
  CHECK(refusal(operands).starts_with("projection: "));
}

TEST_CASE("a cell is right with its layout baked, and with one that is attached later") {
  const Layout layout = square();
  for (const Operation operation : {Operation::forward, Operation::grad_input})
    for (const Precision& precision : Suite::current().precisions()) {
      CAPTURE(name(operation));
      CAPTURE(precision.to_string());
      const bool forward = operation == Operation::forward;
      Options options =
          cell_options(operation, {.residual = !forward, .lstm = true, .keep = forward}, precision);
      const Problem problem = make_problem(layout, options);
      const HostInputs inputs = make_inputs(problem, kBatch, Inputs::random, 5);
      const CheckResult baked = launch_and_check(compile(layout, options), problem, inputs, 16);
      CHECK_MESSAGE(baked.ok, baked.first_failure);
      options.specialization = Specialization::attached;
      Kernel attached = compile(patterns::random(6, 6, 0.5, 9), options);
      attached.relayout(layout);
      const CheckResult moved = launch_and_check(attached, problem, inputs);
      CHECK_MESSAGE(moved.ok, moved.first_failure);
    }
}
