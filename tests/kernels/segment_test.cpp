// A segment of steps of a recurrent network as one graph of a CUDA target.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <sparsekiln/patterns.h>

#include "oracle/draw.h"
#include "runtime/cuda/stream.h"
#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

constexpr std::int64_t kBatch = 3;
constexpr std::int64_t kFeatures = 64;
constexpr int kSteps = 3;

/// A float32 matrix on the device.
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t cols, std::uint64_t seed)
      : rows_(rows), cols_(cols), memory_(Suite::current().device(), sizeof(float) * count()) {
    draw_again(seed);
  }
  void draw_again(std::uint64_t seed) {
    std::vector<float> host(count());
    for (std::size_t i = 0; i < host.size(); ++i)
      host[i] = static_cast<float>(draw(seed, i) >> 40) / (1 << 23) - 1;
    memory_.copy_in(host.data());
  }
  [[nodiscard]] TensorView view() const { return sparsekiln::view(memory_.data(), DType::f32, rows_, cols_); }
  [[nodiscard]] TensorView vector() const {
    return sparsekiln::view(memory_.data(), DType::f32, rows_ * cols_);
  }
  [[nodiscard]] TensorView blocks() const {
    return sparsekiln::view(memory_.data(), DType::f32, rows_ / cols_, cols_, cols_);
  }
  [[nodiscard]] std::vector<float> fetch() const {
    std::vector<float> host(count());
    memory_.copy_out(host.data());
    return host;
  }

 private:
  [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(rows_ * cols_); }
  std::int64_t rows_, cols_;
  DeviceMemory memory_;
};

/// Two internal layers and the gates of a network whose layers are normalised, for some steps, forward.
class Segment {
 public:
  Segment() {
    const Layout inner = patterns::watts_strogatz(4, 4, 0.6, 0.5, 1);
    const std::array layouts{inner, inner, patterns::random(16, 4, 0.5, 2)};
    const std::array epilogues{Epilogue{.layer_norm = true, .multiply = true},
                               Epilogue{.activation = Activation::relu, .layer_norm = true, .add = true},
                               Epilogue{.lstm = true, .layer_norm = true}};
    for (std::size_t layer = 0; layer < layouts.size(); ++layer) {
      Options options = Suite::current().options({16, 16}, kBatch);
      options.epilogue = epilogues[layer];
      kernels_.push_back(compile(layouts[layer], options));
      weights_.emplace_back(16 * layouts[layer].blocks(), 16, 10 + layer);
      const std::int64_t bytes = kernels_.back().workspace_bytes(kBatch);
      workspaces_.push_back(std::make_unique<DeviceMemory>(Suite::current().device(), bytes));
      const std::vector<std::byte> zeros(static_cast<std::size_t>(bytes));
      workspaces_.back()->copy_in(zeros.data());
    }
  }

  /// Queues all steps.
  void launch(void* stream) {
    const Matrix* h = &h0;
    const Matrix* c = &c0;
    for (int step = 0; step < kSteps; ++step) {
      run(0, {.x = h->view(), .y = y_[0].view(), .multiplier = numbers_[0].view()}, stream);
      run(1, {.x = y_[0].view(), .y = y_[1].view(), .addend = numbers_[1].view()}, stream);
      run(2, {.x = y_[1].view(), .y = h_[step].view(), .c_before = c->view(), .c = c_[step].view()}, stream);
      h = &h_[step];
      c = &c_[step];
    }
  }
  /// h of all steps, and the last c.
  [[nodiscard]] std::vector<std::vector<float>> results() const {
    std::vector<std::vector<float>> all;
    for (const Matrix& h : h_) all.push_back(h.fetch());
    all.push_back(c_.back().fetch());
    return all;
  }

  Matrix h0{kBatch, kFeatures, 1};
  Matrix c0{kBatch, kFeatures, 2};

 private:
  void run(std::size_t layer, Operands operands, void* stream) {
    const bool gates = layer == 2;
    operands.w = weights_[layer].blocks();
    operands.gain = (gates ? of_gates_ : gain_).vector();
    operands.bias = (gates ? of_gates_ : bias_).vector();
    operands.sums = (gates ? gate_sums_ : sums_).view();
    operands.statistics = (gates ? gate_statistics_ : statistics_).view();
    operands.workspace = workspaces_[layer]->data();
    operands.workspace_size = static_cast<std::int64_t>(workspaces_[layer]->bytes());
    operands.stream = stream;
    kernels_[layer](operands);
  }

  std::vector<Kernel> kernels_;
  std::deque<Matrix> weights_;
  std::vector<std::unique_ptr<DeviceMemory>> workspaces_;
  Matrix gain_{1, kFeatures, 3};
  Matrix bias_{1, kFeatures, 4};
  Matrix of_gates_{1, 4 * kFeatures, 5};
  Matrix sums_{kBatch, kFeatures, 6};
  Matrix gate_sums_{kBatch, 4 * kFeatures, 6};
  Matrix statistics_{kBatch, 2, 6};
  Matrix gate_statistics_{kBatch, 8, 6};
  std::array<Matrix, 2> numbers_{Matrix{kBatch, kFeatures, 7}, Matrix{kBatch, kFeatures, 8}};
  std::array<Matrix, 2> y_{Matrix{kBatch, kFeatures, 6}, Matrix{kBatch, kFeatures, 6}};
  std::array<Matrix, kSteps> h_{Matrix{kBatch, kFeatures, 6}, Matrix{kBatch, kFeatures, 6},
                                Matrix{kBatch, kFeatures, 6}};
  std::array<Matrix, kSteps> c_{Matrix{kBatch, kFeatures, 6}, Matrix{kBatch, kFeatures, 6},
                                Matrix{kBatch, kFeatures, 6}};
};

}  // namespace

TEST_CASE("a segment of steps is one graph, which computes with what is in memory when it is launched") {
  // Streams are those of the driver, which the emulator may replace: see meson.build.
  if (Suite::current().on_cpu() || Suite::current().emulated()) return;
  Segment segment;
  const cuda::Stream stream;
  stream.begin_capture();
  segment.launch(stream.handle());
  const cuda::Graph graph = stream.end_capture();
  for (const std::uint64_t seed : {21U, 22U}) {
    segment.h0.draw_again(seed);
    segment.launch(stream.handle());
    stream.synchronize();
    const auto wanted = segment.results();
    segment.h0.draw_again(seed + 100);
    segment.launch(stream.handle());
    stream.synchronize();
    CHECK(segment.results() != wanted);
    segment.h0.draw_again(seed);
    graph.launch(stream.handle());
    stream.synchronize();
    CHECK(segment.results() == wanted);
  }
}
