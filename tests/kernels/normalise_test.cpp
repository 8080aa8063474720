// Layer normalisation as an epilogue, alone and with the cell of an LSTM. The case list and the random
// problems have it with everything else; here is what only it has.

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/patterns.h>

#include "compiler/element.h"
#include "runtime/resident_spmm.h"
#include "tests/kernels/suite.h"
#include "tests/kernels/table.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

constexpr std::array kEpilogues{"layer_norm",
                                "layer_norm+multiply+add+relu",
                                "layer_norm+gelu",
                                "layer_norm+multiply+silu",
                                "layer_norm+add+hardswish",
                                "layer_norm+lstm",
                                "layer_norm+multiply+lstm"};

/// Its rows are those of four gates.
Layout tall() { return patterns::random(8, 3, 0.6, 4); }

/// The problem has a residual if it is a gradient and `more`.
Options options_of(Operation operation, std::string_view epilogue, BlockShape block, Batch batch,
                   Precision precision = {}, bool more = true) {
  Options options = Suite::current().options(block, batch, precision);
  options.operation = operation;
  options.epilogue = parse_epilogue(epilogue);
  options.epilogue.residual = operation == Operation::grad_input && more;
  return options;
}

constexpr std::array kOperations{Operation::forward, Operation::grad_input};

/// Where the emulator is to be quick, the first two of all.
std::vector<Precision> some_precisions() {
  std::vector<Precision> all = Suite::current().precisions();
  if (Suite::current().only_pairs()) all.resize(2);
  return all;
}

/// All images after a launch, one after the other.
std::vector<std::byte> images_of(const Kernel& kernel, const Problem& problem, const HostInputs& inputs,
                                 std::int32_t threads) {
  PoisonedOutput output(problem, inputs.n);
  output.hold(inputs);
  const auto& device = Suite::current().device();
  ResidentSpmm operands(kernel, problem, device, inputs, output);
  operands[0].threads = threads;
  kernel(operands[0]);
  device->synchronize();
  operands.fetch(output);
  std::vector<std::byte> images(output.image().begin(), output.image().end());
  for (const PoisonedOutput& other : output.others())
    images.insert(images.end(), other.image().begin(), other.image().end());
  return images;
}

}  // namespace

TEST_CASE("a layer normalisation is right for every type, with any block, batch, layout and features" *
          doctest::test_suite("tables")) {
  struct Shape {
    BlockShape block;
    Batch batch;
    std::int64_t n;
    std::int64_t missing_in = 0, missing_out = 0;
    std::int32_t alignment = 16;
    Specialization specialization = Specialization::baked;
  };
  const std::array shapes{
      Shape{{16, 16}, 5, 5},
      Shape{{8, 8}, Batch::up_to(40), 13, 0, 0, 16, Specialization::attached},
      Shape{{32, 8}, 1, 1, 3, 5},
      Shape{{8, 32}, 33, 33, 7, 1, 0},
      Shape{{64, 16}, Batch::up_to(9), 9},
      Shape{{16, 128}, 2, 2, 5, 3, 8},
      Shape{{16, 64}, 8, 8, 0, 0, 16, Specialization::attached},
  };
  std::vector<Part> parts;
  std::size_t turn = 0;
  std::size_t combination = 0;
  for (const Precision& precision : Suite::current().precisions())
    for (const char* const epilogue : kEpilogues)
      for (const Operation operation : kOperations) {
        // On the emulator every other one, of each epilogue one of the operations with each type.
        const std::size_t number = combination++;
        if (Suite::current().only_pairs() && (number / 2 + number) % 2 != 0) continue;
        const Shape& shape = shapes[turn++ % shapes.size()];
        Options options = options_of(operation, epilogue, shape.block, shape.batch, precision, turn % 3 != 0);
        if (turn % 2 == 0) options.out_dtype = sum_type(precision.dtype);
        options.specialization = shape.specialization;
        const auto widest =
            std::max(size_of(precision.dtype), size_of(options.out_dtype.value_or(precision.dtype)));
        options.alignment = std::max(shape.alignment, static_cast<std::int32_t>(widest));
        const Layout layout = tall();
        const bool whole_rows = options.epilogue.lstm && operation == Operation::forward;
        options.in_features = std::int64_t{layout.cols()} * shape.block.in - shape.missing_in;
        options.out_features =
            std::int64_t{layout.rows()} * shape.block.out - (whole_rows ? 0 : shape.missing_out);
        const auto run = [=]() -> std::string {
          Options chosen = options;
          Kernel kernel;
          if (shape.specialization == Specialization::attached) {
            chosen.in_features = chosen.out_features = 0;
            kernel = compile(patterns::random(8, 3, 0.5, 9), chosen);
            kernel.relayout(layout);
          } else {
            kernel = compile(layout, chosen);
          }
          const Problem problem = make_problem(layout, chosen);
          for (const Inputs kind : {Inputs::small_integers, Inputs::random})
            for (std::uint64_t seed = 1; seed <= (Suite::current().only_pairs() ? 1 : 3); ++seed) {
              const CheckResult result =
                  launch_and_check(kernel, problem, make_inputs(problem, shape.n, kind, seed), 16);
              if (!result.ok) return fmt::format("seed {}: {}", seed, result.first_failure);
            }
          return {};
        };
        parts.push_back(
            {fmt::format("{} {}, block {}, batch {}, {} to {}, {} to {} features, {}", name(operation),
                         to_string(options.epilogue), to_string(shape.block), to_string(shape.batch),
                         precision.to_string(), name(options.out_dtype.value_or(precision.dtype)),
                         options.in_features, options.out_features, name(shape.specialization)),
             layout, options, run});
      }
  run_table(parts);
}

TEST_CASE("a layer normalisation takes any batch up to its bound, none included") {
  const Layout layout = tall();
  for (const Operation operation : kOperations)
    for (const char* const epilogue : {"layer_norm+multiply+add+relu", "layer_norm+lstm"}) {
      const Options options = options_of(operation, epilogue, {16, 16}, Batch::up_to(70));
      const Problem problem = make_problem(layout, options);
      const Kernel kernel = compile(layout, options);
      for (const std::int64_t n : {0, 1, 7, 32, 70}) {
        CAPTURE(std::string(epilogue));
        CAPTURE(n);
        const CheckResult result =
            launch_and_check(kernel, problem, make_inputs(problem, n, Inputs::random, 5), 16);
        CHECK_MESSAGE(result.ok, result.first_failure);
      }
    }
}

TEST_CASE("dnorm of a layer normalisation has any number of parts, more than batch rows too") {
  const Layout layout = tall();
  for (const Precision& precision : Suite::current().precisions())
    for (const char* const epilogue : {"layer_norm+multiply+add+relu", "layer_norm+multiply+lstm"}) {
      const Options options = options_of(Operation::grad_input, epilogue, {16, 8}, 19, precision);
      const Problem problem = make_problem(layout, options);
      const Kernel kernel = compile(layout, options);
      HostInputs inputs = make_inputs(problem, 19, Inputs::random, 7);
      for (const std::int64_t parts : {1, 2, 3, 16, 19, 50}) {
        CAPTURE(precision.to_string());
        CAPTURE(parts);
        take_parts(problem, inputs, parts);
        const CheckResult result = launch_and_check(kernel, problem, inputs);
        CHECK_MESSAGE(result.ok, result.first_failure);
      }
    }
}

TEST_CASE("a layer normalisation whose rows leave warps over is right") {
  const Target& target = Suite::current().device()->target();
  if (target.kind != Target::Kind::cuda || target.compute_capability() < 75) return;
  for (const Operation operation : kOperations) {
    // Three or five of sixteen warps share a row.
    const bool forward = operation == Operation::forward;
    const Layout layout = forward ? patterns::random(40, 3, 0.4, 1) : patterns::random(3, 40, 0.4, 1);
    Options options = options_of(operation, "layer_norm", {32, 32}, 19, {.dtype = DType::f16});
    options.config = parse_config("direct tile_n=16 stages=1 warps=16");
    const Problem problem = make_problem(layout, options);
    HostInputs inputs = make_inputs(problem, 19, Inputs::random, 7);
    const CheckResult result = launch_and_check(compile(layout, options), problem, inputs);
    CHECK_MESSAGE(result.ok, result.first_failure);
  }
}

TEST_CASE("a layer normalisation gives the same bits for any number of threads, and in each launch") {
  const Layout layout = tall();
  const bool on_cpu = Suite::current().on_cpu();
  for (const Operation operation : kOperations)
    for (const auto& [epilogue, dtype] : {std::pair{"layer_norm+multiply+add+gelu", DType::f32},
                                          {"layer_norm+multiply+lstm", DType::f32},
                                          {"layer_norm+multiply+lstm", DType::f16}})
      for (const std::int32_t workers : {1, 8}) {
        Options options = options_of(operation, epilogue, {16, 16}, 37, {.dtype = dtype});
        options.target = Suite::current().target_with(workers);
        const Problem problem = make_problem(layout, options);
        const Kernel kernel = compile(layout, options);
        HostInputs inputs = make_inputs(problem, 37, Inputs::random, 7);
        for (const std::int64_t parts : {1, 3, 16}) {
          if (operation == Operation::grad_input) take_parts(problem, inputs, parts);
          std::vector<std::byte> first;
          for (std::int32_t turn = 0; turn < (on_cpu ? 4 : 3); ++turn) {
            const std::string seed = Suite::current().take_seed(static_cast<std::size_t>(turn));
            constexpr std::array kThreads{1, 2, 3, 8};
            const std::int32_t threads = on_cpu ? kThreads[static_cast<std::size_t>(turn)] : 0;
            const std::vector<std::byte> images = images_of(kernel, problem, inputs, threads);
            if (first.empty()) first = images;
            CAPTURE(std::string(epilogue));
            CAPTURE(workers);
            CAPTURE(threads);
            CAPTURE(seed);
            CHECK((images == first));
          }
        }
      }
}

TEST_CASE("a layer normalisation of sums that are all 0 gives what epsilon makes of them") {
  // Without blocks all sums are 0; with a few, those of two gates are.
  const std::array layouts{
      Layout::from_mask(4, 3, std::vector<std::uint8_t>(12)),
      Layout::from_mask(4, 3, std::vector<std::uint8_t>{0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0})};
  for (const Layout& layout : layouts)
    for (const Precision& precision : some_precisions())
      for (const Operation operation : kOperations)
        for (const char* const epilogue : {"layer_norm+add+relu", "layer_norm+lstm"}) {
          const Options options = options_of(operation, epilogue, {8, 16}, 6, precision);
          const Problem problem = make_problem(layout, options);
          const Kernel kernel = compile(layout, options);
          HostInputs inputs = make_inputs(problem, 6, Inputs::random, 5);
          for (const double epsilon : {1e-5, 1.0}) {
            if (operation == Operation::forward) inputs.epsilon = epsilon;
            CAPTURE(precision.to_string());
            CAPTURE(std::string(epilogue));
            const CheckResult result = launch_and_check(kernel, problem, inputs);
            CHECK_MESSAGE(result.ok, result.first_failure);
          }
        }
}

TEST_CASE("a layer normalisation of a row with an infinity or NaN is NaN in that row alone") {
  const Layout layout = tall();
  for (const Precision& precision : Suite::current().precisions())
    for (const Operation operation : kOperations)
      for (const char* const epilogue : {"layer_norm+multiply+relu", "layer_norm+lstm"}) {
        Options options = options_of(operation, epilogue, {16, 8}, 33, precision);
        options.strict_absent = true;
        const Problem problem = make_problem(layout, options);
        HostInputs inputs = make_inputs(problem, 33, Inputs::random, 5);
        plant_non_finite(problem, inputs, 3);
        CAPTURE(precision.to_string());
        CAPTURE(std::string(epilogue));
        const CheckResult result = launch_and_check(compile(layout, options), problem, inputs);
        CHECK_MESSAGE(result.ok, result.first_failure);
      }
}

namespace {

/// Types of 16 bits: of results that are narrower than what they are made of.
std::vector<Precision> narrow_precisions() {
  std::vector<Precision> all = Suite::current().precisions();
  std::erase_if(all, [](const Precision& one) { return size_of(one.dtype) != 2; });
  return all;
}

void fill(const HostActivation& matrix, double value, std::vector<std::byte>& bytes) {
  for (std::int64_t row = 0; row < matrix.n; ++row)
    for (std::int64_t i = 0; i < matrix.features; ++i)
      store(matrix.dtype, value, bytes.data(), matrix.at(row, i));
}

/// Lets each element of dh be 100 · 100 for each feature of dy.
void make_dh_large(const Problem& problem, HostInputs& inputs) {
  fill({problem.dtype, problem.order, inputs.n, problem.out_features(), inputs.x_stride, {}, 0}, 100,
       inputs.x);
  const auto elements = static_cast<std::int64_t>(inputs.w.size() / size_of(problem.dtype));
  for (std::int64_t i = 0; i < elements; ++i) store(problem.dtype, 100, inputs.w.data(), i);
}

}  // namespace

TEST_CASE("a gradient of a layer normalisation goes through numbers that its result's type cannot hold") {
  const Layout full = Layout::from_mask(2, 3, std::vector<std::uint8_t>(6, 1));
  for (const Precision& precision : narrow_precisions())
    for (const Specialization specialization : {Specialization::baked, Specialization::attached})
      for (const char* const epilogue : {"layer_norm", "layer_norm+multiply+add+leaky_relu",
                                         "layer_norm+lstm", "layer_norm+multiply+lstm"}) {
        Options options = options_of(Operation::grad_input, epilogue, {16, 16}, 5, precision);
        options.specialization = specialization;
        const Problem problem = make_problem(full, options);
        HostInputs inputs = make_inputs(problem, 5, Inputs::random, 5);
        make_dh_large(problem, inputs);
        REQUIRE(1e4 * static_cast<double>(problem.out_features()) > element_format(DType::f16).largest);
        // e is large, too, where its mean is all of it; then dx is small. Otherwise what dh is multiplied by
        // is.
        if (options.epilogue == Epilogue{.residual = true, .layer_norm = true})
          for (std::int64_t i = 0; i < problem.in_features(); ++i)
            store(precision.dtype, 1, inputs.at("gain").bytes.data(), i);
        else if (options.epilogue.multiply)
          fill(inputs.of("multiplier"), 0x1p-10, inputs.at("multiplier").bytes);
        CAPTURE(precision.to_string());
        CAPTURE(std::string(epilogue));
        CAPTURE(name(specialization));
        const CheckResult result = launch_and_check(compile(full, options), problem, inputs);
        CHECK_MESSAGE(result.ok, result.first_failure);
      }
}

TEST_CASE("a gradient of a layer normalisation of a row too long for registers is as exact as any other") {
  // No CTA has registers for the four gates of so many features.
  const Layout layout = patterns::random(1, 20, 0.7, 3);
  for (const Precision& precision : narrow_precisions())
    for (const char* const epilogue : {"layer_norm+multiply+add+relu", "layer_norm+multiply+lstm"}) {
      const Options options = options_of(Operation::grad_input, epilogue, {16, 128}, 3, precision);
      const Problem problem = make_problem(layout, options);
      const Kernel kernel = compile(layout, options);
      const Workspace& workspace = kernel.binary().entries.front().workspace;
      const std::int64_t groups = options.epilogue.lstm ? 4 : 1;
      CHECK(workspace.sums_of_one == 4 * groups * problem.in_features());
      CAPTURE(precision.to_string());
      CAPTURE(std::string(epilogue));
      const CheckResult result =
          launch_and_check(kernel, problem, make_inputs(problem, 3, Inputs::random, 5), 16);
      CHECK_MESSAGE(result.ok, result.first_failure);
    }
}

namespace {

/// float64 where the device computes with it: differences are then exact to many digits.
DType type_of_differences() { return Suite::current().on_cpu() ? DType::f64 : DType::f32; }

/// A matrix on the device.
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t cols, double scale, std::uint64_t seed)
      : rows_(rows),
        cols_(cols),
        host_(static_cast<std::size_t>(rows * cols)),
        memory_(Suite::current().device(), host_.size() * size_of(type_of_differences())) {
    for (std::size_t i = 0; i < host_.size(); ++i)
      host_[i] = scale * (static_cast<double>(draw(seed, i) >> 40) / (1 << 23) - 1);
    send();
  }
  [[nodiscard]] TensorView view() const {
    return sparsekiln::view(memory_.data(), type_of_differences(), rows_, cols_);
  }
  [[nodiscard]] TensorView vector() const {
    return sparsekiln::view(memory_.data(), type_of_differences(), rows_ * cols_);
  }
  [[nodiscard]] TensorView blocks(std::int64_t block) const {
    return sparsekiln::view(memory_.data(), type_of_differences(), rows_ / block, block, cols_);
  }
  [[nodiscard]] const std::vector<double>& fetch() {
    Suite::current().device()->synchronize();
    std::vector<std::byte> bytes(memory_.bytes());
    memory_.copy_out(bytes.data());
    for (std::size_t i = 0; i < host_.size(); ++i)
      host_[i] = to_double(type_of_differences(), bytes.data(), static_cast<std::int64_t>(i));
    return host_;
  }
  [[nodiscard]] std::vector<double>& host() { return host_; }
  void send() {
    std::vector<std::byte> bytes(memory_.bytes());
    for (std::size_t i = 0; i < host_.size(); ++i)
      store(type_of_differences(), host_[i], bytes.data(), static_cast<std::int64_t>(i));
    memory_.copy_in(bytes.data());
  }

 private:
  std::int64_t rows_, cols_;
  std::vector<double> host_;
  DeviceMemory memory_;
};

double dot(Matrix& a, Matrix& b) {
  double sum = 0;
  const std::vector<double>& values = a.fetch();
  for (std::size_t i = 0; i < values.size(); ++i) sum += values[i] * b.host()[i];
  return sum;
}

/// Compares a gradient with the central difference of a loss, in its direction.
template <class Loss>
void check_difference(Loss& layers, Matrix& variable, const std::vector<double>& gradient) {
  double norm = 0;
  for (const double value : gradient) norm += value * value;
  REQUIRE(norm > 0);
  const bool wide = type_of_differences() == DType::f64;
  const std::vector<double> at = variable.host();
  const double step = (wide ? 1e-5 : 1e-2) / std::sqrt(norm);
  double losses[2];
  for (int side = 0; side < 2; ++side) {
    for (std::size_t i = 0; i < at.size(); ++i)
      variable.host()[i] = at[i] + (side == 0 ? step : -step) * gradient[i];
    variable.send();
    losses[side] = layers.loss();
  }
  variable.host() = at;
  variable.send();
  // Along the gradient the loss grows by its squared norm.
  CHECK((losses[0] - losses[1]) / (2 * step) == doctest::Approx(norm).epsilon(wide ? 1e-7 : 5e-3));
}

constexpr std::int64_t kBatch = 5;
constexpr std::int64_t kParts = 3;
constexpr std::int64_t kSide = 16;

Precision precision_of_differences() { return {.dtype = type_of_differences()}; }

/// The sums of the parts: the gradient of the gain, and of the bias.
std::array<std::vector<double>, 2> summed(Matrix& dnorm) {
  const std::vector<double>& parts = dnorm.fetch();
  const std::size_t width = parts.size() / kParts / 2;
  std::array<std::vector<double>, 2> sums{std::vector<double>(width), std::vector<double>(width)};
  for (std::size_t i = 0; i < parts.size(); ++i) sums[i / width % 2][i % width] += parts[i];
  return sums;
}

/// Two layers, each with a normalisation: loss = Σ y of the second times numbers.
class TwoLayers {
 public:
  TwoLayers()
      : layout_(patterns::random(4, 4, 0.6, 3)),
        features_(kSide * layout_.rows()),
        forward_(compile(layout_, options(Operation::forward))),
        back_(compile(layout_, options(Operation::grad_input))) {
    Options gradient = Suite::current().options({kSide, kSide}, kBatch, precision_of_differences());
    gradient.operation = Operation::grad_weight;
    gradient_ = compile(layout_, gradient);
  }
  double loss() {
    for (std::size_t i = 0; i < 2; ++i) {
      const Layer& layer = layers_[i];
      forward_({.x = input(i).view(),
                .w = layer.w.blocks(kSide),
                .y = layer.y.view(),
                .bias = layer.bias.vector(),
                .gain = layer.gain.vector(),
                .sums = layer.sums.view(),
                .statistics = layer.statistics.view(),
                .multiplier = layer.multiplier.view(),
                .addend = layer.addend.view()});
    }
    return dot(layers_[1].y, dy_);
  }
  void gradients() {
    const Matrix none(kBatch, features_, 0, 1);
    for (const std::size_t i : {1, 0}) {
      const Layer& layer = layers_[i];
      back_({.w = layers_[1].w.blocks(kSide),
             .dy = i == 1 ? none.view() : layers_[1].dz.view(),
             .dx = layer.dz.view(),
             .bias = layer.bias.vector(),
             .residual = i == 1 ? dy_.view() : none.view(),
             .gain = layer.gain.vector(),
             .sums = layer.sums.view(),
             .statistics = layer.statistics.view(),
             .multiplier = layer.multiplier.view(),
             .addend = layer.addend.view(),
             .dmultiplier = layer.dmultiplier.view(),
             .daddend = layer.daddend.view(),
             .dnorm = layer.dnorm.view()});
      gradient_({.x = input(i).view(), .dy = layer.dz.view(), .dw = layer.dw.blocks(kSide)});
    }
    Suite::current().device()->synchronize();
  }
  struct Layer {
    Layer(std::int64_t features, std::int64_t blocks, std::uint64_t seed)
        : w(blocks * kSide, kSide, 0.5, seed),
          y(kBatch, features, 0, 1),
          gain(1, features, 1, seed + 1),
          bias(1, features, 1, seed + 2),
          sums(kBatch, features, 0, 1),
          statistics(kBatch, 2, 0, 1),
          multiplier(kBatch, features, 1, seed + 3),
          addend(kBatch, features, 1, seed + 4),
          dz(kBatch, features, 0, 1),
          dmultiplier(kBatch, features, 0, 1),
          daddend(kBatch, features, 0, 1),
          dnorm(kParts, 2 * features, 0, 1),
          dw(blocks * kSide, kSide, 0, 1) {}
    Matrix w, y, gain, bias, sums, statistics, multiplier, addend, dz, dmultiplier, daddend, dnorm, dw;
  };
  Layer& layer(std::size_t i) { return layers_[i]; }

 private:
  [[nodiscard]] static Options options(Operation operation) {
    return options_of(operation, "layer_norm+multiply+add+gelu", {kSide, kSide}, kBatch,
                      precision_of_differences());
  }
  [[nodiscard]] const Matrix& input(std::size_t i) const { return i == 0 ? x_ : layers_[0].y; }

  Layout layout_;
  std::int64_t features_;
  Kernel forward_, back_, gradient_;
  Layer layers_[2] = {{features_, layout_.blocks(), 10}, {features_, layout_.blocks(), 20}};
  Matrix x_{kBatch, features_, 1, 2};
  Matrix dy_{kBatch, features_, 1, 3};
};

/// Two steps of a recurrent layer whose gates are normalised: loss = Σ h and c of the second times numbers.
class TwoSteps {
 public:
  TwoSteps()
      : layout_(patterns::random(8, 2, 0.7, 3)),
        features_(kSide * layout_.cols()),
        forward_(compile(layout_, options(Operation::forward))),
        back_(compile(layout_, options(Operation::grad_input))) {
    Options gradient = Suite::current().options({kSide, kSide}, kBatch, precision_of_differences());
    gradient.operation = Operation::grad_weight;
    gradient_ = compile(layout_, gradient);
  }
  double loss() {
    for (std::size_t t = 0; t < 2; ++t)
      forward_({.x = h_[t].view(),
                .w = w_.blocks(kSide),
                .y = h_[t + 1].view(),
                .bias = bias_.vector(),
                .c_before = c_[t].view(),
                .c = c_[t + 1].view(),
                .gain = gain_.vector(),
                .sums = sums_[t].view(),
                .statistics = statistics_[t].view(),
                .multiplier = multiplier_[t].view()});
    return dot(h_[2], dh_) + dot(c_[2], dc_[2]);
  }
  void gradients() {
    const Matrix none(kBatch, 4 * features_, 0, 1);
    const Matrix no_residual(kBatch, features_, 0, 1);
    for (const std::size_t t : {1, 0})
      back_({.w = w_.blocks(kSide),
             .dy = t == 1 ? none.view() : dz_[1].view(),
             .dx = dz_[t].view(),
             .bias = bias_.vector(),
             .residual = t == 1 ? dh_.view() : no_residual.view(),
             .c_before = c_[t].view(),
             .c = c_[t + 1].view(),
             .dc = dc_[t + 1].view(),
             .dc_before = dc_[t].view(),
             .gain = gain_.vector(),
             .sums = sums_[t].view(),
             .statistics = statistics_[t].view(),
             .multiplier = multiplier_[t].view(),
             .dnorm = dnorm_.view()});
    const ActivationPair pairs[] = {{.x = h_[0].view(), .dy = dz_[0].view()},
                                    {.x = h_[1].view(), .dy = dz_[1].view()}};
    gradient_({.dw = dw_.blocks(kSide), .pairs = pairs});
    Suite::current().device()->synchronize();
  }
  Matrix& w() { return w_; }
  Matrix& gain() { return gain_; }
  Matrix& bias() { return bias_; }
  Matrix& c_first() { return c_[0]; }
  Matrix& dw() { return dw_; }
  Matrix& dnorm() { return dnorm_; }
  Matrix& dc_first() { return dc_[0]; }

 private:
  [[nodiscard]] static Options options(Operation operation) {
    return options_of(operation, "layer_norm+multiply+lstm", {kSide, kSide}, kBatch,
                      precision_of_differences());
  }

  Layout layout_;
  std::int64_t features_;
  Kernel forward_, back_, gradient_;
  Matrix w_{layout_.blocks() * kSide, kSide, 0.5, 1};
  Matrix dw_{layout_.blocks() * kSide, kSide, 0, 1};
  Matrix gain_{1, 4 * features_, 1, 2};
  Matrix bias_{1, 4 * features_, 1, 3};
  Matrix h_[3]{{kBatch, features_, 1, 4}, {kBatch, features_, 0, 1}, {kBatch, features_, 0, 1}};
  Matrix c_[3]{{kBatch, features_, 1, 5}, {kBatch, features_, 0, 1}, {kBatch, features_, 0, 1}};
  Matrix sums_[2]{{kBatch, 4 * features_, 0, 1}, {kBatch, 4 * features_, 0, 1}};
  Matrix statistics_[2]{{kBatch, 8, 0, 1}, {kBatch, 8, 0, 1}};
  Matrix multiplier_[2]{{kBatch, features_, 1, 6}, {kBatch, features_, 1, 7}};
  Matrix dz_[2]{{kBatch, 4 * features_, 0, 1}, {kBatch, 4 * features_, 0, 1}};
  Matrix dh_{kBatch, features_, 1, 8};
  Matrix dc_[3]{{kBatch, features_, 0, 1}, {kBatch, features_, 0, 1}, {kBatch, features_, 1, 9}};
  Matrix dnorm_{kParts, 8 * features_, 0, 1};
};

}  // namespace

TEST_CASE("gradients of two layers with a layer normalisation are those of finite differences") {
  TwoLayers layers;
  static_cast<void>(layers.loss());
  layers.gradients();
  for (const std::size_t i : {0, 1}) {
    CAPTURE(i);
    TwoLayers::Layer& layer = layers.layer(i);
    check_difference(layers, layer.w, layer.dw.fetch());
    const auto [dgain, dbias] = summed(layer.dnorm);
    check_difference(layers, layer.gain, dgain);
    check_difference(layers, layer.bias, dbias);
    check_difference(layers, layer.multiplier, layer.dmultiplier.fetch());
    check_difference(layers, layer.addend, layer.daddend.fetch());
  }
}

TEST_CASE("gradients of two steps of an LSTM with a layer normalisation are those of finite differences") {
  TwoSteps steps;
  static_cast<void>(steps.loss());
  steps.gradients();
  check_difference(steps, steps.w(), steps.dw().fetch());
  const auto [dgain, dbias] = summed(steps.dnorm());
  check_difference(steps, steps.gain(), dgain);
  check_difference(steps, steps.bias(), dbias);
  check_difference(steps, steps.c_first(), steps.dc_first().fetch());
}
