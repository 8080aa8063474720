// How long scheduling takes, and what row groups save: the layers of `./dev demo`, 12288 hidden units in
// blocks of 32 (384 × 384), Watts–Strogatz. loads_saved is the share of the loads of x that row groups of
// `rows` block rows save against single rows; shuffled_saved, that of the same layout with its rows shuffled.
//
//   schedule_speed [--short] [Google Benchmark's options]

#include <cstdint>
#include <string>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sparsekiln/patterns.h>

#include "bench/command_line.h"
#include "compiler/cuda/tables.h"
#include "compiler/schedule.h"
#include "tests/shuffled_rows.h"

namespace sparsekiln {
namespace {

Problem problem_of(const Layout& layout) {
  Problem problem;
  problem.layout = layout;
  problem.block = {32, 32};
  problem.batch = 64;
  return problem;
}

void schedule(benchmark::State& state, std::int64_t grid, double density, double rewire, std::int32_t rows) {
  const Layout layout = patterns::watts_strogatz(grid, grid, density, rewire, 1);
  const Target target = Target::parse("h100");
  Config config;
  config.rows = rows;
  const Problem problem = problem_of(layout);
  Schedule made;
  for ([[maybe_unused]] const auto round : state) {
    made = make_schedule(problem, target, config, 64);
    benchmark::DoNotOptimize(cuda::make_tables(made, {}));
  }
  state.counters["loads_saved"] = figures(made).saved();
  state.counters["shuffled_saved"] =
      figures(make_schedule(problem_of(test::shuffled_rows(layout, 1)), target, config, 64)).saved();
  state.counters["balance"] = figures(made).balance();
}

}  // namespace
}  // namespace sparsekiln

int main(int argc, char** argv) {
  return sparsekiln::bench::run_benchmarks(argc, argv, [](auto&, bool is_short) {
    const std::int64_t grid = is_short ? 48 : 384;
    for (const double density : {0.1, 0.5})
      for (const double rewire : {0.0, 0.3, 1.0})
        for (const std::int32_t rows : {1, 2, 4})
          benchmark::RegisterBenchmark(
              fmt::format("schedule/density:{}/rewire:{}/rows:{}", density, rewire, rows).c_str(),
              [=](benchmark::State& state) { sparsekiln::schedule(state, grid, density, rewire, rows); })
              ->Unit(benchmark::kMillisecond);
  });
}
