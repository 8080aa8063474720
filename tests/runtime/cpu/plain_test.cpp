#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "autotune/default_plan.h"
#include "compiler/activation.h"
#include "compiler/attach.h"
#include "compiler/build.h"
#include "compiler/element.h"
#include "runtime/device.h"
#include "runtime/test_launch.h"
#include "tests/runtime/cpu/product_fixture.h"
#include "tests/runtime/cpu/sddmm_fixture.h"

// Products and gradients of every element type that plain passes compute with: float64, and what is added.

namespace sparsekiln::cpu {
namespace {

constexpr std::array kOperations = {Operation::forward, Operation::grad_input, Operation::grad_weight};
const char* const kAwkward = "000000/101101/000000/111111/000001/010100/000000";

/// The types of operands, and of results. Types of 8 bits have no gradients, and are tested by
/// tests/kernels/eight_bits_test.cpp.
std::vector<std::pair<DType, DType>> plain_types() {
  std::vector<std::pair<DType, DType>> types;
  for (const Element& element : elements()) {
    if (element.cpu != CpuPasses::plain || element.forward_only || element.results.empty()) continue;
    types.emplace_back(element.value, element.value);
    if (element.arithmetic != element.value) types.emplace_back(element.value, element.arithmetic);
  }
  return types;
}

Problem plain_problem(Operation operation, const Layout& layout, BlockShape block, std::int64_t n,
                      std::pair<DType, DType> types) {
  return product_of(layout, block, n, types.first, types.second, operation);
}

Target host(std::int32_t workers) { return {Target::Kind::cpu, host_level(), workers}; }

Kernel built(const Problem& problem, const Target& target, const Plan& plan) {
  return load(std::make_shared<const Binary>(build_binary(problem, target, plan)));
}
Kernel built(const Problem& problem, std::int32_t workers = 2) {
  return built(problem, host(workers), choose_plan(problem, host(workers)));
}

/// The bytes of what a launch of random operands computes.
std::vector<std::byte> bytes_of(const Kernel& kernel, const Problem& problem, const TestLaunchShape& launch) {
  const auto test = make_test_launch(problem, launch, Inputs::random, 5);
  const auto placed = test->place(kernel, sparsekiln::open_device("cpu"));
  placed->launch(kernel);
  std::vector<std::byte> image;
  CHECK(placed->judge(kernel.binary().plan, &image).ok);
  return image;
}

/// Why a result is wrong; empty where it is right, of integers and of random numbers.
void check_launch(const Kernel& kernel, const Problem& problem, const TestLaunchShape& launch) {
  for (const Inputs kind : {Inputs::small_integers, Inputs::random}) {
    CAPTURE(name(problem.operation));
    CAPTURE(name(problem.dtype));
    CAPTURE(to_string(problem.block));
    CAPTURE(to_string(problem.epilogue));
    CAPTURE(name(problem.derivative));
    CAPTURE(launch.n);
    const auto test = make_test_launch(problem, launch, kind, 3 + static_cast<std::uint64_t>(launch.n));
    const auto placed = test->place(kernel, sparsekiln::open_device("cpu"));
    placed->launch(kernel);
    const CheckResult result = placed->judge(kernel.binary().plan, nullptr);
    CHECK_MESSAGE(result.ok, result.first_failure);
  }
}

TEST_CASE("plain passes are right for every operation, block shape and batch") {
  constexpr std::array<BlockShape, 6> kBlocks = {{{8, 8}, {16, 64}, {64, 16}, {32, 32}, {8, 128}, {128, 8}}};
  for (const auto& types : plain_types())
    for (const Operation operation : kOperations)
      for (const BlockShape block : kBlocks) {
        const Problem problem = plain_problem(operation, grid(kAwkward), block, 70, types);
        const Kernel kernel = built(problem);
        for (const std::int64_t n : {0, 1, 2, 7, 33, 70})
          check_launch(kernel, problem, {.n = n, .padding = 8, .pairs = n % 2 == 0 ? 1 : 3});
      }
}

TEST_CASE("plain passes do all that comes with a product") {
  const std::vector<Epilogue> epilogues = {
      {.scale = true},
      {.bias = true},
      {.scale = true, .bias = true, .activation = Activation::relu, .residual = true},
      {.bias = true, .activation = Activation::gelu},
      {.activation = Activation::gelu_tanh, .residual = true},
      {.bias = true, .activation = Activation::hardswish},
      {.activation = Activation::mish},
      {.activation = Activation::leaky_relu},
      {.activation = Activation::tanh},
      {.activation = Activation::sigmoid, .glu = true},
      {.activation = Activation::silu, .glu = true},
      {.scale = true, .bias = true, .activation = Activation::gelu, .glu = true, .residual = true}};
  std::size_t turn = 0;
  for (const auto& types : plain_types())
    for (const Epilogue& epilogue : epilogues)
      for (const ActivationOrder order : {ActivationOrder::batch_major, ActivationOrder::feature_major}) {
        Problem problem = plain_problem(Operation::forward, grid(kAwkward), {16, 8}, 40, types);
        problem.epilogue = epilogue;
        problem.order = order;
        problem.block_scales = turn++ % 2 == 0;
        if (turn % 3 == 0) problem.cut_in_features = problem.in_features() - 3;
        if (turn % 3 == 0) problem.cut_out_features = problem.out_features() - 5;
        const Kernel kernel = built(problem);
        for (const std::int64_t n : {1, 5, 40})
          for (const bool accumulates : {false, true})
            check_launch(kernel, problem, {.n = n, .padding = 8, .accumulates = accumulates});
      }
}

TEST_CASE("plain passes do all that comes with gradients") {
  std::size_t turn = 0;
  for (const auto& types : plain_types())
    for (const Operation operation : {Operation::grad_input, Operation::grad_weight})
      for (const ActivationOrder order : {ActivationOrder::batch_major, ActivationOrder::feature_major})
        for (const ActivationRow& row : activation_rows())
          for (const bool cut : {false, true}) {
            const bool of_weight = operation == Operation::grad_weight;
            Problem problem = plain_problem(operation, grid(kAwkward), {8, 16}, 40, types);
            problem.order = order;
            problem.derivative = row.value;
            problem.epilogue.scale = turn % 2 == 0;
            problem.block_scales = turn % 3 != 0;
            problem.bias_gradient = of_weight && turn % 2 == 0;
            problem.block_scale_gradient = of_weight && problem.block_scales && turn % 4 != 1;
            problem.alignment = static_cast<std::int32_t>(std::max<std::size_t>(2, size_of(types.first)));
            ++turn;
            if (cut) problem.cut_in_features = problem.in_features() - 7;
            if (cut) problem.cut_out_features = problem.out_features() - 2;
            const Kernel kernel = built(problem);
            for (const std::int64_t n : {0, 1, 33})
              for (const bool accumulates : {false, true})
                check_launch(kernel, problem,
                             {.n = n, .padding = 8, .pairs = of_weight ? 2 : 1, .accumulates = accumulates});
          }
}

TEST_CASE("the results of plain passes have the same bits for any number of workers, config and form") {
  const Layout layout = patterns::random(4, 48, 0.7, 5);
  for (const auto& types : plain_types())
    for (const Operation operation : kOperations) {
      const Problem problem = plain_problem(operation, layout, {16, 8}, 33, types);
      const TestLaunchShape launch{
          .n = 33, .padding = 8, .pairs = operation == Operation::grad_weight ? 2 : 1};
      const std::vector<std::byte> first = bytes_of(built(problem, 1), problem, launch);
      for (const std::int32_t workers : {2, 7, 132})
        CHECK(bytes_of(built(problem, workers), problem, launch) == first);
      Plan plan = choose_plan(problem, host(3));
      for (const std::int32_t tile_n : {1, 8, 64}) {
        plan.back().config.tile_n = tile_n;
        CHECK(bytes_of(built(problem, host(3), {plan.back()}), problem, launch) == first);
      }
      Problem other = problem;
      other.layout = patterns::random(3, 5, 0.5, 1);
      const Binary shared = build_binary(other, host(3), choose_attached_plan(other, host(3)));
      const Kernel attached = load(std::make_shared<const Binary>(attach(layout, shared)));
      CHECK(bytes_of(attached, problem, launch) == first);
    }
}

TEST_CASE("plain passes write zeros for layouts without blocks") {
  for (const auto& types : plain_types())
    for (const Operation operation : kOperations) {
      Problem problem = plain_problem(operation, grid("000/000"), {8, 8}, 9, types);
      problem.bias_gradient = operation == Operation::grad_weight;
      check_launch(built(problem), problem, {.n = 9});
    }
}

TEST_CASE("plain passes are right on every level of this host") {
  for (const std::string& level : runnable_levels())
    for (const auto& types : plain_types())
      for (const Operation operation : kOperations) {
        Problem problem = plain_problem(operation, grid(kAwkward), {16, 32}, 20, types);
        if (operation == Operation::forward) problem.epilogue.activation = Activation::gelu;
        const Target target{Target::Kind::cpu, level, 2};
        CAPTURE(level);
        check_launch(built(problem, target, choose_plan(problem, target)), problem, {.n = 19});
      }
}

/// Whether `got` is as near to `want` as a few roundings of float64 leave it.
bool has_all_digits(double got, long double want) {
  return std::fabs(got - want) <= 1e-15L * std::fabs(want);
}

TEST_CASE("alpha and beta of float64 have all their digits, in products and in gradients") {
  constexpr std::int64_t kSide = 8;
  constexpr double kAlpha = 0.1;
  constexpr double kBeta = 0.3;
  const auto counted = [](std::size_t size, double first) {
    std::vector<double> values(size);
    std::iota(values.begin(), values.end(), first);
    return values;
  };
  const std::vector<double> row = counted(kSide, 1);
  const std::vector<double> block = counted(kSide * kSide, 3);
  for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight}) {
    CAPTURE(name(operation));
    const bool of_weight = operation == Operation::grad_weight;
    Problem problem = plain_problem(operation, grid("1"), {8, 8}, 1, {DType::f64, DType::f64});
    problem.epilogue.scale = true;
    problem.bias_gradient = of_weight;
    const Kernel kernel = built(problem);
    std::vector<double> dy = counted(kSide, 2);
    std::vector<double> result = of_weight ? block : counted(kSide, 7);
    const std::vector<double> before = result;
    std::vector<double> dbias = counted(kSide, 5);
    const auto matrix = [](const std::vector<double>& of) { return view(of.data(), DType::f64, 1, kSide); };
    const auto weight = [](const std::vector<double>& of) {
      return view(of.data(), DType::f64, 1, kSide, kSide);
    };
    sparsekiln::Operands operands;
    if (of_weight) {
      operands.x = matrix(row);
      operands.dy = matrix(dy);
      operands.dw = weight(result);
      operands.dbias = view(dbias.data(), DType::f64, kSide);
    } else {
      (operation == Operation::forward ? operands.x : operands.dy) = matrix(row);
      (operation == Operation::forward ? operands.y : operands.dx) = matrix(result);
      operands.w = weight(block);
    }
    operands.alpha = kAlpha;
    operands.beta = kBeta;
    kernel(operands);
    for (std::size_t i = 0; i < result.size(); ++i) {
      CAPTURE(i);
      long double sum = 0;
      for (std::size_t k = 0; k < kSide; ++k)
        sum +=
            row[k] * block[operation == Operation::forward ? i % kSide * kSide + k : k * kSide + i % kSide];
      if (of_weight) sum = dy[i / kSide] * row[i % kSide];
      CHECK(has_all_digits(result[i], kAlpha * sum + static_cast<long double>(kBeta) * before[i]));
    }
    for (std::size_t i = 0; of_weight && i < kSide; ++i)
      CHECK(has_all_digits(dbias[i], static_cast<long double>(kAlpha) * dy[i] +
                                         static_cast<long double>(kBeta) * (5 + static_cast<double>(i))));
  }
}

TEST_CASE("a config that plain passes do not have is refused with one that would work") {
  const Problem problem = plain_problem(Operation::forward, grid("11"), {8, 8}, 9, {DType::f64, DType::f64});
  for (const std::int32_t tile_n : {24, 128}) {
    Config config = choose_plan(problem, host(1)).back().config;
    config.tile_n = tile_n;
    const std::string refusal = ConfigCheck(problem, host(1)).refusal(config);
    CAPTURE(tile_n);
    CHECK(refusal.find("a power of two up to 64") != std::string::npos);
  }
}

}  // namespace
}  // namespace sparsekiln::cpu
