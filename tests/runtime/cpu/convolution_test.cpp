// Convolutions on the cpu target, of all geometries, against their definition
// (oracle/convolution_reference.h).

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <string>

#include <fmt/format.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/patterns.h>

#include "autotune/cpu/defaults.h"
#include "compiler/build.h"
#include "oracle/sddmm_check.h"
#include "oracle/spmm_check.h"
#include "runtime/kernel.h"
#include "runtime/resident_sddmm.h"
#include "runtime/resident_spmm.h"
#include "tests/runtime/cpu/product_fixture.h"

namespace sparsekiln::cpu {
namespace {

/// One convolution and how it is computed. Numbers that are drawn independently of each other, so that one
/// may be made smaller without the others.
struct Trial {
  Problem problem;
  Target target;
  Config config;
  std::int64_t n = 1;

  [[nodiscard]] std::string text() const {
    return fmt::format(
        "{} of '{}', block {}, {} x {} blocks ({}), {} to {} features, aligned to {}, {} -> {}, epilogue {}, "
        "derivative {}, n {}, {}, {}",
        name(problem.operation), to_string(problem.convolution), to_string(problem.block),
        problem.layout.rows(), problem.layout.cols(), problem.layout.blocks(), problem.in_features(),
        problem.out_features(), problem.alignment, name(problem.dtype), name(problem.out_dtype),
        to_string(problem.epilogue), name(problem.derivative), n, target.to_string(), to_string(config));
  }
};

CheckResult checked_product(const Trial& trial, const Kernel& kernel, Inputs kind) {
  const Spmm product(trial.problem);
  HostInputs inputs = make_inputs(product, trial.n, kind, 7);
  if (kind == Inputs::random) plant_non_finite(product, inputs, 5);
  PoisonedOutput output(product, trial.n);
  if (trial.problem.epilogue.scale) output.set(inputs.y);
  ResidentSpmm operands(kernel, trial.problem, open_device(), inputs, output);
  kernel(operands[0]);
  operands.fetch(output);
  return check(product, inputs, output, adder_of(product, kernel.binary().plan));
}

CheckResult checked_gradient(const Trial& trial, const Kernel& kernel, Inputs kind) {
  const Sddmm gradient(trial.problem);
  const SddmmInputs inputs = make_inputs(gradient, {.n = trial.n}, kind, 7);
  SddmmOutputs outputs(gradient, inputs);
  ResidentSddmm operands(gradient, open_device(), inputs, outputs, 1);
  kernel(operands[0]);
  operands.fetch(outputs);
  return check(gradient, inputs, outputs, Adder::float32);
}

/// The fault of a trial; nothing where all is right.
std::optional<std::string> failure_of(const Trial& trial) {
  const Kernel kernel = load(std::make_shared<const Binary>(
      build_binary(trial.problem, trial.target, {{trial.problem.batch.bound(), trial.config}})));
  for (const Inputs kind : {Inputs::small_integers, Inputs::random}) {
    const CheckResult result = trial.problem.operation == Operation::grad_weight
                                   ? checked_gradient(trial, kernel, kind)
                                   : checked_product(trial, kernel, kind);
    if (!result.ok) return result.first_failure;
  }
  return std::nullopt;
}

class Draw {
 public:
  explicit Draw(std::uint32_t seed) : random_(seed) {}
  std::int32_t from(std::int32_t least, std::int32_t most) {
    return least + static_cast<std::int32_t>(random_() % static_cast<std::uint32_t>(most - least + 1));
  }
  template <class T, std::size_t N>
  T one_of(const std::array<T, N>& values) {
    return values[static_cast<std::size_t>(from(0, static_cast<std::int32_t>(N) - 1))];
  }

 private:
  std::mt19937 random_;
};

/// Nothing where the geometry that was drawn has no output.
std::optional<Trial> drawn(std::uint32_t seed) {
  Draw draw(seed);
  Trial trial;
  Problem& problem = trial.problem;
  Convolution& convolution = problem.convolution;
  convolution.dimensions = draw.from(1, 3);
  convolution.transposed = draw.from(0, 2) == 0;
  constexpr std::array<std::int32_t, 3> kLargest{70, 13, 6};
  for (std::size_t i = 3 - static_cast<std::size_t>(convolution.dimensions); i < 3; ++i) {
    convolution.kernel[i] = draw.from(1, convolution.dimensions == 3 ? 3 : 5);
    convolution.stride[i] = draw.from(1, 3);
    convolution.dilation[i] = draw.from(1, 2);
    convolution.padding_before[i] = draw.from(0, 3);
    convolution.padding_after[i] = draw.from(0, 3);
    const std::int32_t largest = kLargest[static_cast<std::size_t>(convolution.dimensions - 1)];
    convolution.input[i] = draw.from(1, convolution.transposed ? largest / convolution.stride[i] : largest);
    if (convolution.transposed)
      convolution.output_padding[i] =
          draw.from(0, std::max(convolution.stride[i], convolution.dilation[i]) - 1);
  }
  problem.operation =
      draw.one_of(std::array{Operation::forward, Operation::grad_input, Operation::grad_weight});
  const std::int32_t side = draw.one_of(std::array{8, 16, 32});
  problem.block = {side, draw.from(0, 3) == 0 ? 16 : side};
  problem.layout = patterns::random(draw.from(1, 5), draw.from(1, 5), 0.5, seed);
  const std::int32_t masked = draw.from(0, 5);  // 0: alike in all blocks; 1: in each as it comes
  const std::int64_t kernels = masked == 0 ? 1 : masked == 1 ? problem.layout.blocks() : 0;
  for (std::int64_t tap = 0; tap < kernels * convolution.taps(); ++tap)
    convolution.tap_mask.push_back(draw.from(0, 2) != 0);
  const auto& [dtype, out_dtype] =
      draw.one_of(std::array{std::pair{DType::f32, DType::f32}, std::pair{DType::bf16, DType::bf16},
                             std::pair{DType::f16, DType::f32}, std::pair{DType::f64, DType::f64}});
  problem.dtype = dtype;
  problem.out_dtype = out_dtype;
  problem.alignment = std::max(draw.one_of(std::array{16, 2}), static_cast<std::int32_t>(size_of(out_dtype)));
  const std::int64_t of_rows = std::int64_t{problem.layout.rows()} * problem.block.out;
  const std::int64_t of_cols = std::int64_t{problem.layout.cols()} * problem.block.in;
  if (draw.from(0, 2) == 0)
    (convolution.transposed ? problem.cut_in_features : problem.cut_out_features) =
        of_rows - draw.from(1, problem.block.out - 1);
  if (draw.from(0, 2) == 0)
    (convolution.transposed ? problem.cut_out_features : problem.cut_in_features) =
        of_cols - draw.from(1, problem.block.in - 1);
  if (problem.operation == Operation::forward)
    problem.epilogue = draw.one_of(std::array{
        Epilogue{}, Epilogue{.bias = true, .activation = Activation::relu},
        Epilogue{
            .scale = true, .bias = true, .activation = Activation::silu, .glu = true, .residual = true}});
  else
    problem.derivative = draw.one_of(std::array{Activation::none, Activation::relu});
  problem.bias_gradient = problem.operation == Operation::grad_weight && draw.from(0, 1) == 1;
  trial.n = draw.from(0, 3);
  problem.batch = draw.from(0, 1) == 0 ? Batch(trial.n) : Batch::up_to(trial.n + 1);
  const std::vector<std::string> levels = runnable_levels();
  const std::string& level =
      levels[static_cast<std::size_t>(draw.from(0, static_cast<std::int32_t>(levels.size()) - 1))];
  trial.target = {Target::Kind::cpu, level, draw.one_of(std::array{1, 2, 7})};
  try {
    validate(problem);
  } catch (const Error&) {
    return std::nullopt;
  }
  const std::int64_t most = problem.batch.bound();
  const bool plain = problem.dtype == DType::f64;
  if (problem.operation == Operation::grad_weight) {
    trial.config = default_config(Sddmm(problem), trial.target, most);
    trial.config.tile_n = draw.from(1, plain ? 64 : 100);
  } else {
    const Spmm product(problem);
    trial.config = default_config(product, trial.target, most);
    if (draw.from(0, 1) == 0) trial.config.tile_n = plain ? 1 << draw.from(0, 6) : 16 * draw.from(1, 8);
    if (draw.from(0, 2) == 0) trial.config.split = draw.from(1, 6);
    trial.config.packed = !plain && !product.by_columns() && draw.from(0, 1) == 0;
  }
  return trial;
}

/// Smaller ones that may fail as well.
std::vector<Trial> smaller(const Trial& trial) {
  std::vector<Trial> trials;
  const auto with = [&](const auto& change) {
    Trial one = trial;
    change(one);
    try {
      validate(one.problem);
    } catch (const Error&) {
      return;
    }
    if (one.text() != trial.text()) trials.push_back(one);
  };
  with([](Trial& one) { one.n = std::min<std::int64_t>(one.n, 1), one.problem.batch = one.n; });
  with([](Trial& one) {
    one.problem.layout = patterns::random(1, 1, 1, 1);
    one.problem.cut_in_features = one.problem.cut_out_features = 0;
  });
  with([](Trial& one) { one.problem.cut_in_features = 0; });
  with([](Trial& one) { one.problem.cut_out_features = 0; });
  with([](Trial& one) { one.problem.convolution.tap_mask.clear(); });
  with([](Trial& one) {
    one.problem.convolution.transposed = false;
    one.problem.convolution.output_padding = {0, 0, 0};
  });
  with([](Trial& one) { one.problem.convolution.output_padding = {0, 0, 0}; });
  with([](Trial& one) { one.problem.epilogue = {}; });
  with([](Trial& one) { one.problem.derivative = Activation::none; });
  with([](Trial& one) { one.target.workers = 1; });
  for (std::size_t i = 0; i < 3; ++i) {
    with([&](Trial& one) { one.problem.convolution.stride[i] = 1; });
    with([&](Trial& one) { one.problem.convolution.dilation[i] = 1; });
    with([&](Trial& one) { one.problem.convolution.padding_before[i] = 0; });
    with([&](Trial& one) { one.problem.convolution.padding_after[i] = 0; });
    with([&](Trial& one) {
      one.problem.convolution.kernel[i] = std::max(1, one.problem.convolution.kernel[i] - 1);
    });
    with([&](Trial& one) {
      one.problem.convolution.input[i] = std::max(1, one.problem.convolution.input[i] / 2);
    });
  }
  return trials;
}

/// The smallest failing trial that steps from `trial` lead to.
std::string shrunk(Trial trial, std::string failure) {
  for (bool again = true; again;) {
    again = false;
    for (const Trial& one : smaller(trial)) {
      const auto fails = failure_of(one);
      if (!fails) continue;
      trial = one;
      failure = *fails;
      again = true;
      break;
    }
  }
  return fmt::format("{}: {}", trial.text(), failure);
}

TEST_CASE("convolutions of random geometries are what their definition says") {
  constexpr int kTrials = 300;
  int trials = 0;
  for (std::uint32_t seed = 1; trials < kTrials; ++seed) {
    const auto trial = drawn(seed);
    if (!trial) continue;
    ++trials;
    const auto failure = failure_of(*trial);
    if (!failure) continue;
    CAPTURE(seed);
    FAIL(shrunk(*trial, *failure));
  }
}

constexpr std::array kAllOperations = {Operation::forward, Operation::grad_input, Operation::grad_weight};

/// What a config that splits no row computes of random inputs.
std::vector<std::byte> results_of(const Problem& problem, std::int64_t n) {
  const Target target{Target::Kind::cpu, host_level(), 1};
  const auto build = [&](Config config) {
    config.split = 1;
    return load(std::make_shared<const Binary>(build_binary(problem, target, {{n, config}})));
  };
  const auto image_of = [](const PoisonedOutput& output) {
    return std::vector<std::byte>(output.image().begin(), output.image().end());
  };
  if (problem.operation == Operation::grad_weight) {
    const Sddmm gradient(problem);
    const Kernel kernel = build(default_config(gradient, target, n));
    const SddmmInputs inputs = make_inputs(gradient, {.n = n}, Inputs::random, 7);
    SddmmOutputs outputs(gradient, inputs);
    ResidentSddmm operands(gradient, open_device(), inputs, outputs, 1);
    kernel(operands[0]);
    operands.fetch(outputs);
    return image_of(outputs.dw);
  }
  const Spmm product(problem);
  const Kernel kernel = build(default_config(product, target, n));
  const HostInputs inputs = make_inputs(product, n, Inputs::random, 7);
  PoisonedOutput output(product, n);
  ResidentSpmm operands(kernel, problem, open_device(), inputs, output);
  kernel(operands[0]);
  operands.fetch(output);
  return image_of(output);
}

/// A trial of 2 images on the host, with the default config.
Trial trial_of(const std::string& convolution, Operation operation, const Epilogue& epilogue = {}) {
  Trial trial;
  trial.problem = product_of(grid("11/01"), {8, 8}, 2, DType::f32, DType::f32, operation);
  trial.problem.convolution = parse_convolution(convolution);
  trial.problem.epilogue = epilogue;
  trial.problem.batch = 2;
  trial.n = 2;
  trial.target = {Target::Kind::cpu, host_level(), 2};
  trial.config = default_config(Spmm(trial.problem), trial.target, 2);
  return trial;
}

TEST_CASE("inputs that no window reaches have a gradient of zero") {
  CHECK(failure_of(trial_of("kernel=2 stride=3 input=12", Operation::grad_input)) == std::nullopt);
}

TEST_CASE("outputs of a transposed convolution that no window reaches are what the epilogue makes of zero") {
  const Epilogue ends{.scale = true, .bias = true, .activation = Activation::silu, .residual = true};
  for (const char* text : {"kernel=2 stride=3 input=4 transposed output-padding=2",
                           "kernel=1x2 stride=4x1 dilation=1x5 input=3x3 transposed output-padding=3x4"}) {
    CAPTURE(text);
    CHECK(failure_of(trial_of(text, Operation::forward)) == std::nullopt);
    CHECK(failure_of(trial_of(text, Operation::forward, ends)) == std::nullopt);
  }
}

TEST_CASE("small blocks of a transposed convolution with two weights sum both") {
  const Epilogue glu{.bias = true, .activation = Activation::gelu, .glu = true};
  CHECK(failure_of(trial_of("kernel=3x3 stride=2 padding=1 input=5x6 transposed", Operation::forward, glu)) ==
        std::nullopt);
}

TEST_CASE("a convolution of one tap has the bits of a linear layer over its positions") {
  const Layout layout = patterns::random(6, 5, 0.5, 3);
  for (const Operation operation : kAllOperations) {
    Problem linear = product_of(layout, {16, 16}, 2 * 35, DType::f32, DType::f32, operation);
    linear.batch = 2 * 35;
    Problem convolution = linear;
    convolution.batch = 2;
    convolution.convolution = parse_convolution("kernel=1x1 input=5x7");
    CHECK(results_of(linear, 2 * 35) == results_of(convolution, 2));
  }
}

/// The same numbers, whatever the operands are called.
TEST_CASE("a transposed convolution has the bits of the gradient of the one that it is the adjoint of") {
  Problem plain = product_of(patterns::random(5, 4, 0.5, 3), {16, 16}, 2, DType::f32, DType::f32);
  plain.batch = 2;
  plain.convolution = parse_convolution("kernel=3x3 stride=2 padding=1 input=8x7");
  Problem transposed = plain;
  transposed.convolution =
      parse_convolution("kernel=3x3 stride=2 padding=1 input=4x4 transposed output-padding=1x0");
  CHECK(transposed.convolution.output() == plain.convolution.input);
  const auto with = [](Problem problem, Operation operation) {
    problem.operation = operation;
    return results_of(problem, 2);
  };
  CHECK(with(transposed, Operation::forward) == with(plain, Operation::grad_input));
  CHECK(with(transposed, Operation::grad_input) == with(plain, Operation::forward));
}

}  // namespace
}  // namespace sparsekiln::cpu
