// Convolutions of channels-first activations: the same as channels-last ones, in another order.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <sparsekiln/convolution.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "autotune/default_plan.h"
#include "runtime/build_job.h"
#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

constexpr std::byte kPoison{0xff};  // numbers of it are NaN

struct Side {
  std::int64_t n, positions, features;
};

/// Images in device memory, with `gap` elements after each where they are channels-first.
class ImagesOnDevice {
 public:
  ImagesOnDevice(const Side& side, DType dtype, ActivationOrder order, std::int64_t gap)
      : side_(side),
        dtype_(dtype),
        first_(order == ActivationOrder::feature_major),
        stride_(side.positions * side.features + (first_ ? gap : 0)),
        host_(static_cast<std::size_t>(side.n * stride_) * size_of(dtype), kPoison),
        memory_(Suite::current().device(), host_.size()) {
    memory_.copy_in(host_.data());
  }

  /// Elements in channels-last order, [n][positions][features].
  void set(std::span<const std::byte> last) {
    each([&](std::size_t from, std::size_t to) { copy(last.data() + from, host_.data() + to); });
    memory_.copy_in(host_.data());
  }
  [[nodiscard]] std::vector<std::byte> get() {
    memory_.copy_out(host_.data());
    std::vector<std::byte> last(static_cast<std::size_t>(side_.n * side_.positions * side_.features) *
                                size_of(dtype_));
    each([&](std::size_t to, std::size_t from) { copy(host_.data() + from, last.data() + to); });
    return last;
  }
  /// Whether nothing was written after the images.
  [[nodiscard]] bool gaps_hold() {
    memory_.copy_out(host_.data());
    const auto image = static_cast<std::size_t>(side_.positions * side_.features) * size_of(dtype_);
    const auto stride = static_cast<std::size_t>(stride_) * size_of(dtype_);
    for (std::size_t n = 0; n < static_cast<std::size_t>(side_.n); ++n)
      for (std::size_t i = image; i < stride; ++i)
        if (host_[n * stride + i] != kPoison) return false;
    return true;
  }
  [[nodiscard]] TensorView view() const {
    TensorView view;
    view.data = memory_.data();
    view.dtype = dtype_;
    view.rank = first_ ? 3 : 2;
    if (first_) {
      const std::int64_t shape[] = {side_.n, side_.features, side_.positions};
      const std::int64_t stride[] = {stride_, side_.positions, 1};
      std::copy(shape, shape + 3, view.shape);
      std::copy(stride, stride + 3, view.stride);
    } else {
      view.shape[0] = side_.n * side_.positions;
      view.shape[1] = view.stride[0] = side_.features;
      view.stride[1] = 1;
    }
    return view;
  }

 private:
  /// Byte offsets of each element, channels-last and as it is here.
  template <class Use>
  void each(Use use) const {
    const std::size_t element = size_of(dtype_);
    for (std::int64_t n = 0; n < side_.n; ++n)
      for (std::int64_t p = 0; p < side_.positions; ++p)
        for (std::int64_t f = 0; f < side_.features; ++f) {
          const std::int64_t last = (n * side_.positions + p) * side_.features + f;
          const std::int64_t here = first_ ? n * stride_ + f * side_.positions + p : last;
          use(static_cast<std::size_t>(last) * element, static_cast<std::size_t>(here) * element);
        }
  }
  void copy(const std::byte* from, std::byte* to) const { std::memcpy(to, from, size_of(dtype_)); }

  Side side_;
  DType dtype_;
  bool first_;
  std::int64_t stride_;
  std::vector<std::byte> host_;
  DeviceMemory memory_;
};

/// Numbers between 1/16 and 16, of either sign and with all bits of their type.
std::vector<std::byte> numbers(std::int64_t count, DType dtype, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size_of(dtype));
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const auto sign = static_cast<unsigned>(random() % 2);
    const auto exponent = static_cast<unsigned>(random() % 8);
    const auto bits = static_cast<unsigned>(random());
    const unsigned word = dtype == DType::f16    ? sign << 15 | (11 + exponent) << 10 | bits % (1u << 10)
                          : dtype == DType::bf16 ? sign << 15 | (123 + exponent) << 7 | bits % (1u << 7)
                                                 : sign << 31 | (123 + exponent) << 23 | bits % (1u << 23);
    std::memcpy(bytes.data() + i * size_of(dtype), &word, size_of(dtype));
  }
  return bytes;
}

/// A workspace with only the counters zeroed, and memory after it that nothing may write.
class Workspace {
 public:
  Workspace(const Kernel& kernel, std::int64_t n)
      : bytes_(static_cast<std::size_t>(kernel.workspace_bytes(n))),
        host_(bytes_ + kGuard, kPoison),
        memory_(Suite::current().device(), host_.size()) {
    std::fill_n(host_.begin(), kernel.workspace_counter_bytes(), std::byte{0});
    memory_.copy_in(host_.data());
  }
  void give(Operands& operands) const {
    operands.workspace = memory_.data();
    operands.workspace_size = static_cast<std::int64_t>(bytes_);
  }
  [[nodiscard]] bool guard_holds() {
    memory_.copy_out(host_.data());
    return std::all_of(host_.begin() + static_cast<std::ptrdiff_t>(bytes_), host_.end(),
                       [](std::byte byte) { return byte == kPoison; });
  }

 private:
  static constexpr std::size_t kGuard = 4096;
  std::size_t bytes_;
  std::vector<std::byte> host_;
  DeviceMemory memory_;
};

TensorView blocks(const DeviceMemory& memory, const OperandContract& contract, DType dtype) {
  TensorView view;
  view.data = memory.data();
  view.dtype = dtype;
  view.rank = 3;
  view.shape[0] = contract.blocks;
  view.shape[1] = contract.block.out;
  view.shape[2] = view.stride[1] = contract.block.in;
  view.stride[0] = std::int64_t{contract.block.out} * contract.block.in;
  view.stride[2] = 1;
  return view;
}

/// What a launch computes: activations in channels-last order, or dw. The same inputs in every order.
std::vector<std::byte> computed(const Layout& layout, const Options& options, std::int64_t n,
                                std::int64_t gap) {
  const Kernel kernel = compile(layout, options);
  const OperandContract& contract = kernel.binary().operands;
  const bool gradient = contract.operation == Operation::grad_weight;
  const bool forward = contract.operation == Operation::forward;
  const DType dtype = contract.dtype;
  const Side inputs{n, contract.convolution.input_positions(), contract.in_features};
  const Convolution::Extents extents = contract.convolution.output();
  const Side outputs{n, std::int64_t{extents[0]} * extents[1] * extents[2], contract.out_features};
  ImagesOnDevice of_inputs(inputs, dtype, contract.order, gap);
  ImagesOnDevice of_outputs(outputs, dtype, contract.order, gap);
  ImagesOnDevice z(outputs, dtype, contract.order, 2 * gap);
  ImagesOnDevice& read = forward ? of_inputs : of_outputs;
  ImagesOnDevice& written = forward ? of_outputs : of_inputs;
  ImagesOnDevice residual(forward ? outputs : inputs, dtype, contract.order, 3 * gap);
  const auto draw = [&](const Side& side, unsigned seed) {
    return numbers(side.n * side.positions * side.features, dtype, seed);
  };
  of_inputs.set(draw(inputs, 1));
  of_outputs.set(draw(outputs, 2));
  z.set(draw(outputs, 3));
  residual.set(draw(forward ? outputs : inputs, 4));
  const std::vector<std::byte> weight =
      numbers(contract.blocks * contract.block.out * contract.block.in, dtype, 5);
  DeviceMemory w(Suite::current().device(), weight.size());
  w.copy_in(weight.data());
  DeviceMemory dw(Suite::current().device(), weight.size());
  dw.copy_in(weight.data());
  Workspace workspace(kernel, n);

  Operands operands;
  workspace.give(operands);
  operands.alpha = 1.5;
  operands.beta = 0.5;
  operands.w = blocks(w, contract, dtype);
  if (contract.derivative != Activation::none) operands.z = z.view();
  if (gradient) {
    operands.w = {};
    operands.x = of_inputs.view();
    operands.dy = of_outputs.view();
    operands.dw = blocks(dw, contract, dtype);
  } else {
    (forward ? operands.x : operands.dy) = read.view();
    (forward ? operands.y : operands.dx) = written.view();
    if (contract.epilogue.residual) operands.residual = residual.view();
  }
  kernel(operands);
  Suite::current().device()->synchronize();
  CHECK(workspace.guard_holds());
  for (ImagesOnDevice* const images : {&of_inputs, &of_outputs, &z, &residual}) CHECK(images->gaps_hold());
  if (!gradient) return written.get();
  std::vector<std::byte> result(weight.size());
  dw.copy_out(result.data());
  return result;
}

}  // namespace

TEST_CASE("a convolution of channels-first images has the bits of the channels-last one, whatever it reads") {
  // All taps, a stride, a transposed one, a linear layer of all positions; images of an odd number of points.
  for (const char* const geometry :
       {"kernel=3x3 padding=1 input=6x8", "kernel=3x2 stride=2 padding=1 input=7x7",
        "kernel=3 stride=2 padding=1 output-padding=1 transposed input=5x7", "kernel=1x1 input=12x12"})
    for (const Precision& precision : Suite::current().precisions())
      for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight}) {
        if (precision.dtype == DType::f64) continue;
        Options options = Suite::current().options({16, 32}, 3, precision);
        options.operation = operation;
        options.convolution = parse_convolution(geometry);
        options.epilogue.scale = true;
        if (operation == Operation::forward)
          options.epilogue.residual = true;
        else
          options.derivative = Activation::relu;
        const Layout layout = patterns::random(3, 3, 0.7, 2);
        const Target target = resolve_target(options.target);
        options.config = choose_plan(make_problem(layout, options), target).front().config;
        const std::vector<std::byte> last = computed(layout, options, 3, 0);
        options.order = ActivationOrder::feature_major;
        CAPTURE(geometry);
        CAPTURE(precision.to_string());
        CAPTURE(name(operation));
        CHECK(computed(layout, options, 3, operation == Operation::grad_input ? 0 : 16) == last);
      }
}

TEST_CASE("a launch of channels-first images takes as much workspace as its images need") {
  if (Suite::current().on_cpu()) return;
  Options options = Suite::current().options({16, 16}, Batch::up_to(9));
  options.convolution = parse_convolution("kernel=3x3 padding=1 input=5x5");
  options.order = ActivationOrder::feature_major;
  options.in_features = 30;  // whose rows have 16 bytes each, 8 of them
  const Kernel kernel = compile(patterns::random(2, 2, 1, 1), options);
  const std::int64_t image = 25 * (32 + 32) * 4;
  for (const std::int64_t n : {1, 2, 9}) CHECK(kernel.workspace_bytes(n) >= n * image);
  const Entry& last = kernel.binary().entries.back();
  CHECK(last.workspace.bytes_of_one == image);
  CHECK(last.passes.size() == 3);
}

TEST_CASE("launches of channels-first images do not begin early") {
  if (Suite::current().on_cpu()) return;
  Options options = Suite::current().options({16, 16}, 2);
  options.convolution = parse_convolution("kernel=3x3 padding=1 input=5x5");
  options.order = ActivationOrder::feature_major;
  options.overlap_launches = true;
  const Kernel kernel = compile(patterns::random(2, 2, 1, 1), options);
  CHECK_FALSE(kernel.binary().operands.overlap_launches);
  CHECK_FALSE(kernel.binary().entries.front().attributes.overlaps_previous);
}

TEST_CASE("an edge bias goes with channels-first images on CUDA targets alone") {
  Options options = Suite::current().options({16, 16}, 1);
  options.convolution = parse_convolution("kernel=3x3 padding=1 input=5x5");
  options.order = ActivationOrder::feature_major;
  options.epilogue.edge_bias = true;
  const Layout layout = patterns::random(2, 2, 1, 1);
  if (!Suite::current().on_cpu()) {
    CHECK_NOTHROW(static_cast<void>(compile(layout, options)));
    return;
  }
  try {
    static_cast<void>(compile(layout, options));
    FAIL("it was compiled");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    CHECK(std::string(error.what()).find("edge bias for a cpu target") != std::string::npos);
  }
}
