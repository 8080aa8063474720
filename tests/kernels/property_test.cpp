#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "compiler/activation.h"
#include "runtime/test_launch.h"
#include "tests/kernels/suite.h"
#include "tests/kernels/table.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

/// A random problem and launch as plain numbers, so that a failing one can be reduced.
struct Drawn {
  std::uint64_t seed = 0;  ///< of layout and inputs
  std::int32_t rows = 1, cols = 1;
  double density = 1;
  std::int32_t workers = 1;
  std::int32_t missing_in = 0, missing_out = 0;  ///< features that the last blocks lack
  Options options;
  TestLaunchShape launch;

  [[nodiscard]] Layout layout() const {
    const auto grid = static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
    return density >= 1 ? Layout::from_mask(rows, cols, std::vector<std::uint8_t>(grid, 1))
                        : patterns::random(rows, cols, density, seed);
  }
  [[nodiscard]] std::string to_string() const {
    const Options& o = options;
    std::string text = fmt::format(
        "{} {}x{} blocks of {}, density {:.2f}, seed {}, batch {}, n {}, {} to {}, {}, {}, epilogue {}, {} "
        "workers",
        name(o.operation), rows, cols, sparsekiln::to_string(o.block), density, seed,
        sparsekiln::to_string(o.batch), launch.n, name(o.dtype), name(o.out_dtype.value_or(o.dtype)),
        name(o.math), name(o.order), sparsekiln::to_string(o.epilogue), workers);
    if (o.derivative != Activation::none) text += fmt::format(", derivative {}", name(o.derivative));
    if (o.block_scales)
      text += o.block_scale_gradient ? ", block scales and their gradient" : ", block scales";
    if (o.bias_gradient) text += ", bias gradient";
    if (missing_in != 0) text += fmt::format(", {} inputs less", missing_in);
    if (missing_out != 0) text += fmt::format(", {} outputs less", missing_out);
    if (o.alignment != 16) text += fmt::format(", alignment {}", o.alignment);
    if (o.specialization != Specialization::baked) text += fmt::format(", {}", name(o.specialization));
    if (launch.padding != 0) text += fmt::format(", rows {} elements apart", launch.padding);
    if (launch.pairs != 1) text += fmt::format(", {} pairs", launch.pairs);
    if (!launch.accumulates) text += ", beta 0";
    return text;
  }
};

using Random = std::mt19937_64;

/// Half of all draws are the plain value, which comes first.
template <class Value, std::size_t kCount>
Value pick(Random& random, const std::array<Value, kCount>& values) {
  return random() % 2 == 0 ? values[0] : values[random() % kCount];
}
template <class Value, std::size_t kCount>
Value any(Random& random, const std::array<Value, kCount>& values) {
  return values[random() % kCount];
}

constexpr std::array kEpilogues{
    Epilogue{},
    Epilogue{.scale = true},
    Epilogue{.bias = true},
    Epilogue{.activation = Activation::relu},
    Epilogue{.bias = true, .activation = Activation::gelu},
    Epilogue{.activation = Activation::gelu_tanh, .residual = true},
    Epilogue{.scale = true, .bias = true, .activation = Activation::silu, .residual = true},
    Epilogue{.activation = Activation::silu, .glu = true},
    Epilogue{.bias = true, .activation = Activation::gelu, .glu = true, .residual = true},
    Epilogue{.scale = true, .activation = Activation::relu, .glu = true},
    Epilogue{.activation = Activation::sigmoid, .glu = true},
    Epilogue{.bias = true, .activation = Activation::tanh, .glu = true},
    Epilogue{.scale = true, .bias = true, .activation = Activation::hardswish},
    Epilogue{.bias = true, .activation = Activation::mish, .residual = true},
    Epilogue{.bias = true, .activation = Activation::leaky_relu},
};

Drawn draw(std::uint64_t seed) {
  Random random(seed);
  Drawn drawn;
  drawn.seed = seed;
  drawn.rows = 1 + static_cast<std::int32_t>(random() % 5);
  drawn.cols = 1 + static_cast<std::int32_t>(random() % 5);
  drawn.density = any(random, std::array{0.3, 0.6, 1.0});
  drawn.workers = any(random, std::array{1, 2, 7, 132});
  Options& o = drawn.options;
  constexpr std::array kSides{8, 16, 32, 64};
  o.block = {any(random, kSides), any(random, kSides)};
  const std::int64_t n =
      any(random, std::array<std::int64_t, 14>{0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 70});
  drawn.launch.n = n;
  o.batch = random() % 4 == 0 ? Batch::up_to(n + static_cast<std::int64_t>(random() % 40)) : Batch(n);
  const std::vector<Precision> precisions = Suite::current().precisions();
  const Precision precision = precisions[random() % precisions.size()];
  o.dtype = precision.dtype;
  o.math = precision.math;
  o.out_dtype = random() % 3 == 0 ? sum_type(o.dtype) : o.dtype;
  o.operation = any(random, std::array{Operation::forward, Operation::grad_input, Operation::grad_weight});
  o.order = pick(random, std::array{ActivationOrder::batch_major, ActivationOrder::feature_major});
  const bool forward = o.operation == Operation::forward;
  o.epilogue = pick(random, kEpilogues);
  if (!forward) o.epilogue = Epilogue{.scale = o.epilogue.scale};
  const bool cell = random() % 6 == 0;
  // Every other gradient has a derivative.
  const auto activations = activation_rows();
  const std::size_t which = random() % (2 * activations.size());
  if (!forward && which < activations.size()) o.derivative = activations[which].value;
  o.block_scales = random() % 6 == 0;
  if (cell) {
    const bool more = random() % 2 == 0;
    o.epilogue = Epilogue{.scale = o.operation == Operation::grad_weight && more,
                          .residual = o.operation == Operation::grad_input && more,
                          .lstm = true,
                          .keep = forward && more};
    o.derivative = Activation::none;
    o.block_scales = false;
  }
  const bool normalises = !cell && o.operation != Operation::grad_weight && random() % 4 == 0;
  if (normalises) {
    const bool gates = random() % 2 == 0;
    o.epilogue = Epilogue{.residual = !forward && random() % 2 == 0,
                          .lstm = gates,
                          .layer_norm = true,
                          .multiply = random() % 2 == 0,
                          .add = !gates && random() % 2 == 0};
    if (!gates) o.epilogue.activation = activations[random() % activations.size()].value;
    if (gates && forward) drawn.rows = 4;
    o.derivative = Activation::none;
    o.order = ActivationOrder::batch_major;
  }
  if (o.operation == Operation::grad_weight) {
    o.bias_gradient = random() % 4 == 0;
    o.block_scale_gradient = o.block_scales && random() % 2 == 0;
    drawn.launch.pairs = pick(random, std::array<std::int64_t, 3>{1, 2, 5});
  }
  if (!Suite::current().on_cpu() && random() % 6 == 0) o.specialization = Specialization::attached;
  if (o.specialization == Specialization::baked && random() % 5 == 0) {
    drawn.missing_in = static_cast<std::int32_t>(random() % 8);
    drawn.missing_out = static_cast<std::int32_t>(random() % 8);
    if (cell || (normalises && o.epilogue.lstm && forward)) drawn.missing_out = 0;
    if (cell && o.operation == Operation::grad_input) drawn.missing_in = 0;
  }
  if (random() % 6 == 0)
    o.alignment = static_cast<std::int32_t>(std::max(size_of(o.dtype), size_of(*o.out_dtype)));
  drawn.launch.padding = pick(random, std::array<std::int64_t, 2>{0, 16});
  drawn.launch.accumulates = random() % 2 == 0;
  return drawn;
}

/// The result of a problem.
struct Outcome {
  std::string refusal;  ///< no kernel computes it
  std::string failure;  ///< what is wrong
};

/// All of them, for this run's device and store.
Options options_of(const Drawn& drawn) {
  Options options = drawn.options;
  options.in_features = std::int64_t{drawn.cols} * options.block.in - drawn.missing_in;
  options.out_features = std::int64_t{drawn.rows} * options.block.out - drawn.missing_out;
  options.target = Suite::current().target_with(drawn.workers);
  options.cache_dir = Suite::current().cache_dir();
  return options;
}

Outcome run(const Drawn& drawn) {
  const Options options = options_of(drawn);
  std::optional<Kernel> kernel;
  try {
    const Layout layout = drawn.layout();
    const Problem problem = make_problem(layout, options);
    try {
      kernel = compile(layout, options);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::invalid_argument) throw;
      return {error.what(), {}};
    }
    for (const Inputs kind : {Inputs::small_integers, Inputs::random}) {
      (void)Suite::current().take_seed(static_cast<std::size_t>(drawn.seed % 3));
      const auto test_launch = make_test_launch(problem, drawn.launch, kind, drawn.seed);
      const auto layer = test_launch->place(*kernel, Suite::current().device());
      layer->launch(*kernel);
      Suite::current().device()->synchronize();
      const CheckResult check_result = layer->judge(kernel->binary().plan, nullptr);
      if (!check_result.ok)
        return {{},
                fmt::format("{}: {}", kind == Inputs::random ? "random" : "small integers",
                            check_result.first_failure)};
    }
  } catch (const std::exception& error) {
    return {{}, error.what()};
  }
  return {};
}

/// Not if the program that starts this process ends a part that takes long (tests/gpu/suite.py): the failure
/// itself would be lost with it.
bool may_shrink() {
  const char* const said = std::getenv("SPARSEKILN_TEST_SHRINK");
  return said == nullptr || std::string_view(said) != "0";
}

/// Reduces a failing problem, change by change, while it still fails: for a minute, and as long as the
/// device's context works, without which everything fails. No change reverts another.
Drawn shrunk(Drawn failing) {
  using Change = std::function<void(Drawn&)>;
  const std::vector<Change> changes{
      [](Drawn& d) { d.rows = 1; },
      [](Drawn& d) { d.cols = 1; },
      [](Drawn& d) { d.rows = std::max(1, d.rows - 1); },
      [](Drawn& d) { d.cols = std::max(1, d.cols - 1); },
      [](Drawn& d) { d.density = 1; },
      [](Drawn& d) { d.workers = 1; },
      [](Drawn& d) { d.options.batch = Batch(d.launch.n); },
      [](Drawn& d) { d.options.batch = d.launch.n = std::min<std::int64_t>(d.launch.n, 1); },
      [](Drawn& d) { d.options.batch = d.launch.n = d.launch.n / 2; },
      [](Drawn& d) { d.options.batch = d.launch.n = std::max<std::int64_t>(d.launch.n - 1, 0); },
      [](Drawn& d) { d.options.block.out = std::max(8, d.options.block.out / 2); },
      [](Drawn& d) { d.options.block.in = std::max(8, d.options.block.in / 2); },
      [](Drawn& d) { d.options.epilogue = {}; },
      [](Drawn& d) { d.options.epilogue.scale = false; },
      [](Drawn& d) { d.options.epilogue.bias = false; },
      [](Drawn& d) { d.options.epilogue.residual = false; },
      [](Drawn& d) { d.options.epilogue.glu = false; },
      [](Drawn& d) { d.options.epilogue.multiply = false; },
      [](Drawn& d) { d.options.epilogue.add = false; },
      [](Drawn& d) { d.options.epilogue.keep = false; },
      [](Drawn& d) { d.options.epilogue.activation = Activation::none; },
      [](Drawn& d) { d.options.derivative = Activation::none; },
      [](Drawn& d) { d.options.block_scales = d.options.block_scale_gradient = false; },
      [](Drawn& d) { d.options.block_scale_gradient = false; },
      [](Drawn& d) { d.options.bias_gradient = false; },
      [](Drawn& d) { d.missing_in = 0; },
      [](Drawn& d) { d.missing_out = 0; },
      [](Drawn& d) { d.options.alignment = 16; },
      [](Drawn& d) { d.options.specialization = Specialization::baked; },
      [](Drawn& d) { d.options.order = ActivationOrder::batch_major; },
      [](Drawn& d) { d.options.out_dtype = DType::f32; },
      [](Drawn& d) { d.launch.padding = 0; },
      [](Drawn& d) { d.launch.pairs = 1; },
      [](Drawn& d) { d.launch.accumulates = false; },
  };
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (bool progress = true; progress;) {
    progress = false;
    for (const Change& change : changes) {
      if (std::chrono::steady_clock::now() >= until) return failing;
      Drawn simpler = failing;
      change(simpler);
      if (simpler.to_string() == failing.to_string() || run(simpler).failure.empty()) continue;
      failing = simpler;
      if (context_is_lost()) return failing;
      progress = true;
    }
  }
  return failing;
}

/// Problems that are known to have no kernel; any other refusal is a failure.
bool may_be_refused(const Drawn& drawn) {
  const Options& o = drawn.options;
  if (Suite::current().on_cpu()) return false;
  // It is multiplied block by block, and the block's 8 inputs of 16 bits do not fill the tensor core's k.
  const bool weights = o.epilogue.glu || (o.epilogue.lstm && o.operation == Operation::forward);
  return weights && o.dtype != DType::f32 && o.block.in == 8;
}

/// A refusal without its numbers.
std::string kind_of(std::string refusal) {
  refusal.resize(std::min(refusal.size(), refusal.find(':')));
  std::erase_if(refusal, [](char c) { return c >= '0' && c <= '9'; });
  return refusal;
}

}  // namespace

TEST_CASE("random problems are computed right, or refused" * doctest::test_suite("tables")) {
  const int whole = Suite::current().only_pairs() ? 100 : 300;
  const int wanted = Suite::current().every() == 1 ? whole : 50;
  const std::uint64_t first = 1000003 * Suite::seed_of_today();
  std::map<std::string, int> refusals;
  std::vector<Part> parts;
  for (int computed = 0; computed < wanted;) {
    const Drawn drawn = draw(first + parts.size());
    if (!may_be_refused(drawn)) ++computed;
    const auto check = [&refusals, drawn]() -> std::string {
      const Outcome outcome = run(drawn);
      if (!outcome.refusal.empty()) {
        if (!may_be_refused(drawn)) return "refused: " + outcome.refusal;
        ++refusals[kind_of(outcome.refusal)];
      }
      if (outcome.failure.empty() || !may_shrink() || context_is_lost()) return outcome.failure;
      const Drawn small = shrunk(drawn);
      return fmt::format("{}\n  at its smallest: {}\n  {}", outcome.failure, small.to_string(),
                         run(small).failure);
    };
    parts.push_back({fmt::format("SPARSEKILN_TEST_SEED={}, draw {}: {}", Suite::seed_of_today(), parts.size(),
                                 drawn.to_string()),
                     drawn.layout(), options_of(drawn), check});
  }
  if (run_table(parts) < parts.size()) return;
  std::printf("%zu random problems, SPARSEKILN_TEST_SEED=%llu; refused:\n", parts.size(),
              static_cast<unsigned long long>(Suite::seed_of_today()));
  for (const auto& [what, count] : refusals) std::printf("  %4d %s\n", count, what.c_str());
}
