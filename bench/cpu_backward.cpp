// The backward pass on this machine's processors compared with forward, at the same shapes.
//
// Square layers of random blocks. Every iteration of a benchmark is one round of all operations, one after
// the other on the same threads, so that a busy machine affects them alike. The counters are medians over the
// rounds of what was measured, or of ratios within a round:
//  forward, grad_input, grad_weight              GFLOP/s of present blocks
//  grad_input_vs_forward, grad_weight_vs_forward  its rate over forward's, which should be at least 0.9
// After the last benchmark come the geometric mean and the worst of each ratio.
//
//  --short         measures only small layers, for tests (bench/command_line.h)
//  --dtype=TEXT    of activations and weight: f32 (the default), bf16, f16
//  --threads=N     by default all that the process may use
//  --clock=cpu     processor time of the process over its threads, instead of wall-clock time: for machines
//                  with other work to do

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sparsekiln/sparsekiln.h>

#include "bench/check_kernel.h"
#include "bench/command_line.h"
#include "bench/contest.h"
#include "compiler/element.h"
#include "system/standard_streams.h"

namespace sparsekiln {
namespace {

/// The first is what the others are compared with.
constexpr std::array kOperations = {Operation::forward, Operation::grad_input, Operation::grad_weight};

struct Case {
  std::int64_t features;
  std::int32_t block;
  double density;
  std::int64_t n;
};

struct Machine {
  DType dtype = DType::f32;
  std::int32_t threads = 1;
};

/// The values that are measured, along each axis of the cases.
struct Axes {
  std::vector<std::int64_t> features{2560, 4096};
  std::vector<std::int32_t> blocks{8, 16, 32, 64};
  std::vector<double> densities{0.1, 0.25, 0.5};
  std::vector<std::int64_t> batches{1, 32, 64, 256};
  int rounds = 7;
};
const Axes kShort{{256}, {8, 32}, {0.25}, {1, 32}, 2};

/// A matrix with small noise in it.
class Matrix {
 public:
  Matrix(DType dtype, std::int64_t rows, std::int64_t columns)
      : dtype_(dtype), rows_(rows), columns_(columns) {
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    std::minstd_rand random(1);
    for (float& value : values) value = static_cast<float>(random() % 2048 + 1) / 4096.0F;
    bytes_.resize(values.size() * size_of(dtype));
    store(dtype, values, bytes_.data(), 0);
  }
  [[nodiscard]] TensorView view() { return sparsekiln::view(bytes_.data(), dtype_, rows_, columns_); }
  [[nodiscard]] TensorView blocks(std::int32_t side) {
    return sparsekiln::view(bytes_.data(), dtype_, rows_ * columns_ / side / side, side, side);
  }

 private:
  DType dtype_;
  std::int64_t rows_;
  std::int64_t columns_;
  std::vector<std::byte> bytes_;
};

/// A square layer, and what its operations read and write.
class Layer {
 public:
  Layer(const Case& given, const Machine& machine)
      : layout_(
            patterns::random(given.features / given.block, given.features / given.block, given.density, 1)),
        side_(given.block),
        flops_(2.0 * static_cast<double>(layout_.blocks() * side_ * side_ * given.n)),
        weight_(machine.dtype, layout_.blocks() * side_, side_),
        weight_gradient_(machine.dtype, layout_.blocks() * side_, side_),
        from_(machine.dtype, given.n, given.features),
        to_(machine.dtype, given.n, given.features) {}

  [[nodiscard]] Operands operands(Operation operation) {
    switch (operation) {
      case Operation::forward:
        return {.x = from_.view(), .w = weight_.blocks(side_), .y = to_.view()};
      case Operation::grad_input:
        return {.w = weight_.blocks(side_), .dy = from_.view(), .dx = to_.view()};
      case Operation::grad_weight:
        return {.x = from_.view(), .dy = to_.view(), .dw = weight_gradient_.blocks(side_)};
    }
    return {};
  }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] double flops() const { return flops_; }

 private:
  Layout layout_;
  std::int32_t side_;
  double flops_;
  Matrix weight_;
  Matrix weight_gradient_;
  Matrix from_;
  Matrix to_;
};

std::string ratio_name(Operation operation) {
  return fmt::format("{}_vs_{}", name(operation), name(kOperations[0]));
}

/// Ratios of every case that was run, by name.
using Ratios = std::map<std::string, std::vector<double>>;

void compare(benchmark::State& state, const Case& given, const Machine& machine, Ratios& ratios) {
  Layer layer(given, machine);
  std::vector<bench::Contestant> contestants;
  for (const Operation operation : kOperations) {
    Options options{.block = {given.block, given.block}, .batch = given.n, .dtype = machine.dtype};
    options.operation = operation;
    options.target = fmt::format("cpu:{}", machine.threads);
    const Kernel kernel = compile(layer.layout(), options);
    bench::check_kernel(layer.layout(), options, kernel);
    contestants.emplace_back([kernel, operands = layer.operands(operation)] { kernel(operands); });
  }
  bench::Rounds rounds;
  for ([[maybe_unused]] const auto round : state) {
    double first = 0;
    for (std::size_t i = 0; i < kOperations.size(); ++i) {
      const double rate = layer.flops() / contestants[i].measure();
      rounds.add(std::string(name(kOperations[i])), rate / 1e9);
      if (i == 0)
        first = rate;
      else
        rounds.add(ratio_name(kOperations[i]), rate / first);
    }
    state.SetIterationTime(layer.flops() / first);
  }
  rounds.report(state);
  for (std::size_t i = 1; i < kOperations.size(); ++i)
    ratios[ratio_name(kOperations[i])].push_back(rounds.middle(ratio_name(kOperations[i])));
}

std::string text_of(const Ratios& ratios) {
  std::string text;
  for (const auto& [name, values] : ratios) {
    double logarithms = 0;
    for (const double value : values) logarithms += std::log(value);
    text += fmt::format("{}: geometric mean {:.2f}, worst {:.2f} of {} shapes\n", name,
                        std::exp(logarithms / static_cast<double>(values.size())),
                        *std::min_element(values.begin(), values.end()), values.size());
  }
  return text;
}

}  // namespace
}  // namespace sparsekiln

int main(int argc, char** argv) {
  using namespace sparsekiln;
  Ratios ratios;
  const auto declare = [&](bench::CommandLine& line, bool is_short) {
    Machine machine;
    machine.dtype = parse_dtype(line.take("--dtype").value_or("f32"));
    const auto threads = line.take("--threads");
    machine.threads = threads ? Target::parse("cpu:" + *threads).workers : Target::host().workers;
    bench::choose_clock(line.take("--clock"), machine.threads);
    const Axes axes = is_short ? kShort : Axes{};
    for (const std::int64_t features : axes.features)
      for (const std::int32_t block : axes.blocks)
        for (const double density : axes.densities)
          for (const std::int64_t n : axes.batches)
            benchmark::RegisterBenchmark(
                fmt::format("features:{}/block:{}/density:{}/n:{}", features, block, density, n).c_str(),
                [=, &ratios](benchmark::State& state) {
                  compare(state, {features, block, density, n}, machine, ratios);
                })
                ->UseManualTime()
                ->Unit(benchmark::kMillisecond)
                ->Iterations(axes.rounds);
  };
  const int status = bench::run_benchmarks(argc, argv, declare);
  try {
    write_results(text_of(ratios));
    return status;
  } catch (const Error& error) {
    write_message(fmt::format("cpu_backward: {}\n", error.what()));
    return 1;
  }
}
