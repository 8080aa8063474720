#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

/// A kernel with operands that fit it; a test then changes one of them.
class Operand {
 public:
  explicit Operand(Batch batch, Precision precision = {})
      : options_(Suite::current().options({16, 8}, batch, precision)),
        layout_(patterns::random(4, 6, 0.5, 9)),
        problem_(make_problem(layout_, options_)),
        kernel_(compile(layout_, options_)),
        inputs_(make_inputs(problem_, kN, Inputs::small_integers, 1, problem_.in_features() + 8)),
        output_(problem_, kN, problem_.out_features() + 8),
        x_(Suite::current().device(), inputs_.x.size() + 256),
        w_(Suite::current().device(), inputs_.w.size() + 256),
        y_(Suite::current().device(), output_.image().size() + 256) {}

  /// Launches with changed operands: that must be refused as an invalid argument that names `operand`, with
  /// nothing written.
  void must_refuse(const std::string& operand, const std::function<void(Operands&)>& spoil) {
    const auto& device = *Suite::current().device();
    device.copy_in(y_.data(), output_.image().data(), output_.image().size());
    Operands operands{
        .x = strided_view(x_.data(), problem_.dtype, kN, problem_.in_features(), inputs_.x_stride),
        .w = view(w_.data(), problem_.dtype, layout_.blocks(), problem_.block.out, problem_.block.in),
        .y = output_.view(y_.data())};
    spoil(operands);
    std::string message = "(nothing was thrown)";
    ErrorKind kind = ErrorKind::internal;
    try {
      kernel_(operands);
    } catch (const Error& error) {
      message = error.what();
      kind = error.kind();
    }
    CHECK_MESSAGE(kind == ErrorKind::invalid_argument, message);
    CHECK_MESSAGE(message.starts_with(operand + ": "), message);
    device.synchronize();
    PoisonedOutput after = output_;
    device.copy_out(after.image().data(), y_.data(), after.image().size());
    CHECK(after.inspect().unwritten == kN * problem_.out_features());
    CHECK(after.inspect().stray == 0);
  }

  static constexpr std::int64_t kN = 5;

 private:
  Options options_;
  Layout layout_;
  Problem problem_;
  Kernel kernel_;
  HostInputs inputs_;
  PoisonedOutput output_;
  DeviceMemory x_, w_, y_;
};

void* shifted(void* pointer, int bytes) { return static_cast<std::byte*>(pointer) + bytes; }

}  // namespace

TEST_CASE("operands of the wrong type are refused") {
  Operand operand(Operand::kN);
  operand.must_refuse("x", [](Operands& o) { o.x.dtype = DType::bf16; });
  operand.must_refuse("w", [](Operands& o) { o.w.dtype = DType::bf16; });
  operand.must_refuse("y", [](Operands& o) { o.y.dtype = DType::bf16; });
  if (Suite::current().on_cpu()) return;
  Operand half(Operand::kN, {DType::f16});
  half.must_refuse("x", [](Operands& o) { o.x.dtype = DType::bf16; });
  half.must_refuse("w", [](Operands& o) { o.w.dtype = DType::bf16; });
  half.must_refuse("y", [](Operands& o) { o.y.dtype = DType::f32; });
}

TEST_CASE("operands of the wrong shape or rank are refused") {
  Operand operand(Operand::kN);
  operand.must_refuse("x", [](Operands& o) { o.x.shape[1] += 8; });
  operand.must_refuse("x", [](Operands& o) { o.x.rank = 1; });
  operand.must_refuse("y", [](Operands& o) { o.y.shape[1] -= 8; });
  operand.must_refuse("y", [](Operands& o) { o.y.shape[0] -= 1; });
  operand.must_refuse("y", [](Operands& o) { o.y.rank = 3; });
  operand.must_refuse("w", [](Operands& o) { o.w.shape[0] += 1; });
  operand.must_refuse("w", [](Operands& o) { std::swap(o.w.shape[1], o.w.shape[2]); });
  operand.must_refuse("w", [](Operands& o) { o.w = TensorView{}; });
}

TEST_CASE("a kernel that is not given its operands names those that it takes") {
  const Layout layout = patterns::random(4, 6, 0.5, 9);
  Options options = Suite::current().options({16, 8}, 5);
  const auto message = [&](const Operands& operands) -> std::string {
    try {
      compile(layout, options)(operands);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::invalid_argument);
      return error.what();
    }
    return "";
  };
  float anything = 0;
  const TensorView some = view(&anything, DType::f32, 5, 48);
  CHECK(message({.dy = some, .dx = some}) == "x: it was not given; a kernel of forward takes x, w and y");
  CHECK(message({.x = some}) == "y: it was not given; a kernel of forward takes x, w and y");
  options.operation = Operation::grad_input;
  CHECK(message({.x = some, .y = some}) == "dy: it was not given; a kernel of grad_input takes dy, w and dx");
  CHECK(message({.dy = some, .dx = some}).starts_with("dy: rank 2 and shape [5, 48]"));
}

TEST_CASE("a batch other than the fixed one, or above the bound, is refused") {
  const auto set_batch = [](std::int64_t n) { return [n](Operands& o) { o.x.shape[0] = o.y.shape[0] = n; }; };
  Operand fixed(Operand::kN);
  fixed.must_refuse("x", set_batch(Operand::kN - 1));
  fixed.must_refuse("x", set_batch(Operand::kN + 1));
  Operand bounded(Batch::up_to(Operand::kN));
  bounded.must_refuse("x", set_batch(Operand::kN + 1));
  bounded.must_refuse("x", set_batch(-1));
}

TEST_CASE("null and misaligned operands are refused") {
  for (const Precision& precision : Suite::current().precisions()) {
    CAPTURE(precision.to_string());
    Operand operand(Operand::kN, precision);
    operand.must_refuse("x", [](Operands& o) { o.x.data = nullptr; });
    operand.must_refuse("w", [](Operands& o) { o.w.data = nullptr; });
    operand.must_refuse("y", [](Operands& o) { o.y.data = nullptr; });
    for (int bytes = static_cast<int>(size_of(precision.dtype)); bytes < 16; bytes *= 2) {
      operand.must_refuse("x", [&](Operands& o) { o.x.data = shifted(o.x.data, bytes); });
      operand.must_refuse("w", [&](Operands& o) { o.w.data = shifted(o.w.data, bytes); });
      operand.must_refuse("y", [&](Operands& o) { o.y.data = shifted(o.y.data, bytes); });
    }
  }
}

TEST_CASE("strides that are misaligned, shorter than a row, or not dense within it are refused") {
  for (const Precision& precision : Suite::current().precisions()) {
    CAPTURE(precision.to_string());
    Operand operand(Operand::kN, precision);
    operand.must_refuse("x", [](Operands& o) { o.x.stride[0] += 1; });
    operand.must_refuse("y", [](Operands& o) { o.y.stride[0] += 1; });
    operand.must_refuse("x", [](Operands& o) { o.x.stride[0] = o.x.shape[1] - 4; });
    operand.must_refuse("y", [](Operands& o) { o.y.stride[0] = -o.y.stride[0]; });
    operand.must_refuse("x", [](Operands& o) { o.x.stride[1] = 2; });
    operand.must_refuse("y", [](Operands& o) { o.y.stride[1] = 0; });
    operand.must_refuse("w", [](Operands& o) { o.w.stride[0] *= 2; });
    // Rows that start at addresses other than multiples of 16 bytes.
    const std::int64_t unit = 16 / static_cast<std::int64_t>(size_of(precision.dtype));
    operand.must_refuse("x", [&](Operands& o) { o.x.stride[0] += unit - 1; });
    operand.must_refuse("y", [&](Operands& o) { o.y.stride[0] += unit / 2; });
  }
}

TEST_CASE("results must not overlap operands, but may be next to them in one tensor") {
  Operand operand(Operand::kN);
  operand.must_refuse("y", [](Operands& o) { o.x.data = o.y.data; });
  operand.must_refuse("y", [](Operands& o) { o.w.data = o.y.data; });
  operand.must_refuse("y", [](Operands& o) {
    o.x.data = static_cast<std::byte*>(o.y.data) + 16;
    o.x.stride[0] = o.y.stride[0] = 128;
  });

  const Layout layout = patterns::random(4, 6, 0.5, 9);
  const Options options = Suite::current().options({16, 8}, Operand::kN);
  const Kernel kernel = compile(layout, options);
  const auto& device = Suite::current().device();
  DeviceMemory weight(device, static_cast<std::size_t>(layout.blocks()) * 16 * 8 * 4);
  DeviceMemory both(device, Operand::kN * 128 * 4);
  const std::vector<std::byte> zeros(weight.bytes() + both.bytes());
  weight.copy_in(zeros.data());
  both.copy_in(zeros.data());
  auto* const y = static_cast<std::byte*>(both.data()) + 64 * 4;  // x has 48 columns, y the 64 from 64 on
  CHECK_NOTHROW(kernel({.x = strided_view(both.data(), DType::f32, Operand::kN, 48, 128),
                        .w = view(weight.data(), DType::f32, layout.blocks(), 16, 8),
                        .y = strided_view(y, DType::f32, Operand::kN, 64, 128)}));
  device->synchronize();
}

TEST_CASE("a view of another device is refused") {
  const std::int32_t elsewhere = Suite::current().on_cpu() ? 0 : kHostDevice;
  Operand operand(Operand::kN);
  operand.must_refuse("x", [&](Operands& o) { o.x.device = elsewhere; });
  operand.must_refuse("w", [&](Operands& o) { o.w.device = elsewhere; });
  operand.must_refuse("y", [&](Operands& o) { o.y.device = elsewhere; });
}

TEST_CASE("alpha and beta are refused by a kernel that does not take them") {
  Operand operand(Operand::kN);
  operand.must_refuse("alpha", [](Operands& o) { o.alpha = 2; });
  operand.must_refuse("beta", [](Operands& o) { o.beta = 1; });
}

TEST_CASE("a batch of matrices is computed without a copy, as one product if that is possible") {
  constexpr std::int64_t kMatrices = 3;
  constexpr std::int64_t kN = 4;
  constexpr std::int64_t kIn = 48;
  constexpr std::int64_t kOut = 64;
  const Layout layout = patterns::random(4, 6, 0.5, 9);
  const auto& device = Suite::current().device();
  // Elements from one matrix to the next: directly after it, and with a gap.
  for (const std::int64_t gap : {0, 16})
    for (const Batch batch : {Batch(kN), Batch(kMatrices * kN), Batch::up_to(64)}) {
      CAPTURE(gap);
      CAPTURE(to_string(batch));
      const Options options = Suite::current().options({16, 8}, batch);
      const Kernel kernel = compile(layout, options);
      const Problem problem = make_problem(layout, options);
      const HostInputs inputs = make_inputs(problem, kMatrices * kN, Inputs::small_integers, 5);
      const auto all = static_cast<std::size_t>(kMatrices * (kN * std::max(kIn, kOut) + gap)) * sizeof(float);
      DeviceMemory x(device, all);
      DeviceMemory y(device, all);
      DeviceMemory w(device, inputs.w.size());
      std::vector<std::byte> spread(all);
      for (std::int64_t m = 0; m < kMatrices; ++m)
        std::copy_n(inputs.x.begin() + m * kN * kIn * 4, kN * kIn * 4,
                    spread.begin() + m * (kN * kIn + gap) * 4);
      x.copy_in(spread.data());
      w.copy_in(inputs.w.data());
      TensorView from = view(x.data(), DType::f32, kMatrices, kN, kIn);
      TensorView to = view(y.data(), DType::f32, kMatrices, kN, kOut);
      from.stride[0] += gap;
      to.stride[0] += gap;
      const Operands operands{.x = from, .w = view(w.data(), DType::f32, layout.blocks(), 16, 8), .y = to};
      if (gap != 0 && batch == Batch(kMatrices * kN)) {  // neither one matrix of 12 nor matrices of 12
        CHECK_THROWS_AS(kernel(operands), Error);
        continue;
      }
      kernel(operands);
      device->synchronize();
      y.copy_out(spread.data());
      PoisonedOutput output(problem, kMatrices * kN);
      for (std::int64_t m = 0; m < kMatrices; ++m)
        std::copy_n(spread.begin() + m * (kN * kOut + gap) * 4, kN * kOut * 4,
                    output.y() + m * kN * kOut * 4);
      const CheckResult check_result = check(problem, inputs, output, Adder::float32);
      CHECK_MESSAGE(check_result.ok, check_result.first_failure);
    }
}

namespace {

/// A gradient of the weight with operands that fit it; a test then changes one of them.
class SddmmOperand {
 public:
  explicit SddmmOperand(bool block_scales)
      : kernel_(compile(patterns::block_diagonal(4, 4, 4), options(block_scales))),
        memory_(Suite::current().device(), kRegion * 8) {
    const std::vector<float> fives(memory_.bytes() / sizeof(float), 5.0F);
    memory_.copy_in(fives.data());
  }
  [[nodiscard]] std::byte* at(std::size_t region) const {
    return static_cast<std::byte*>(memory_.data()) + region * kRegion;
  }
  [[nodiscard]] Operands operands() const {
    return {.x = view(at(0), DType::f32, kN, kFeatures),
            .w = view(at(2), DType::f32, kBlocks, kBlock, kBlock),
            .dy = view(at(1), DType::f32, kN, kFeatures),
            .dw = view(at(3), DType::f32, kBlocks, kBlock, kBlock),
            .block_scales = view(at(4), DType::f32, kBlocks),
            .dbias = view(at(5), DType::f32, kFeatures),
            .dblock_scales = view(at(6), DType::f32, kBlocks)};
  }
  void must_refuse(const std::string& operand, const std::function<void(Operands&)>& spoil) {
    Operands spoiled = operands();
    spoil(spoiled);
    std::string message = "(nothing was thrown)";
    try {
      kernel_(spoiled);
    } catch (const Error& error) {
      message = error.what();
    }
    CHECK_MESSAGE(message.starts_with(operand + ": it overlaps "), message);
    Suite::current().device()->synchronize();
  }
  /// dw after a launch.
  [[nodiscard]] std::vector<float> launch(const Operands& operands) {
    kernel_(operands);
    Suite::current().device()->synchronize();
    std::vector<float> all(memory_.bytes() / sizeof(float));
    memory_.copy_out(all.data());
    const auto* const begin = all.data() + 3 * kRegion / sizeof(float);
    return {begin, begin + kBlocks * kBlock * kBlock};
  }

  static constexpr std::int64_t kN = 16;
  static constexpr std::int64_t kBlock = 16;
  static constexpr std::int64_t kFeatures = 4 * kBlock;
  static constexpr std::int64_t kBlocks = 4;
  static constexpr std::size_t kRegion = 8192;  ///< bytes

 private:
  static Options options(bool block_scales) {
    Options options = Suite::current().options({kBlock, kBlock}, kN, {});
    options.operation = Operation::grad_weight;
    options.block_scales = options.block_scale_gradient = options.bias_gradient = block_scales;
    return options;
  }
  Kernel kernel_;
  DeviceMemory memory_;
};

}  // namespace

TEST_CASE("results of a gradient of the weight must overlap neither operands nor each other") {
  SddmmOperand operand(true);
  operand.must_refuse("dw", [](Operands& o) { o.dw.data = o.w.data; });
  operand.must_refuse("dw", [](Operands& o) { o.dw.data = static_cast<std::byte*>(o.w.data) + 1024; });
  operand.must_refuse("dblock_scales", [](Operands& o) { o.dblock_scales.data = o.dw.data; });
  operand.must_refuse("dbias", [](Operands& o) { o.dblock_scales.data = o.dbias.data; });
  operand.must_refuse("dblock_scales", [](Operands& o) { o.dblock_scales.data = o.block_scales.data; });
  operand.must_refuse("dbias", [](Operands& o) { o.dbias.data = o.x.data; });
}

TEST_CASE("the gradient of no matrices at all is zeros") {
  SddmmOperand operand(false);
  Operands none = operand.operands();
  none.x = view(operand.at(0), DType::f32, 0, SddmmOperand::kN, SddmmOperand::kFeatures);
  none.dy = view(operand.at(1), DType::f32, 0, SddmmOperand::kN, SddmmOperand::kFeatures);
  const std::vector<float> dw = operand.launch(none);
  CHECK(std::all_of(dw.begin(), dw.end(), [](float value) { return value == 0; }));
  CHECK(operand.launch(operand.operands()).front() == 5 * 5 * SddmmOperand::kN);
}

TEST_CASE("matrices of y may be next to each other, but must overlap neither each other nor x") {
  constexpr std::int64_t kN = 4;
  const Layout layout = patterns::block_diagonal(4, 4, 4);
  const Kernel kernel = compile(layout, Suite::current().options({16, 16}, kN));
  const auto& device = Suite::current().device();
  DeviceMemory memory(device, 65536);
  const std::vector<std::byte> zeros(memory.bytes());
  memory.copy_in(zeros.data());
  auto* const begin = static_cast<std::byte*>(memory.data());
  Operands operands{.x = view(begin, DType::f32, 2, kN, 64),
                    .w = view(begin + 16384, DType::f32, 4, 16, 16),
                    .y = view(begin + 32768, DType::f32, 2, kN, 64)};
  CHECK_NOTHROW(kernel(operands));
  operands.y.stride[0] = 64;  // next to each other in rows of 128
  operands.y.stride[1] = 128;
  CHECK_NOTHROW(kernel(operands));
  for (const std::int64_t stride : {0, 32, 96}) {
    CAPTURE(stride);
    operands.y.stride[0] = stride;
    CHECK_THROWS_AS(kernel(operands), Error);
  }
  operands.y = view(begin + 1024, DType::f32, 2, kN, 64);
  operands.y.stride[0] = -256;
  operands.x = view(begin, DType::f32, 2, kN, 64);
  CHECK_THROWS_AS(kernel(operands), Error);
  device->synchronize();
}
