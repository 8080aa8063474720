#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/patterns.h>

#include "autotune/cuda/work.h"
#include "compiler/schedule.h"
#include "tests/counters/default_launch.h"

// What the emulator counts of kernels of variant halo, compared with what the cost model expects.

namespace sparsekiln::test {
namespace {

struct Launch {
  const char* geometry;
  BlockShape block;
  const char* numbers;  ///< of the config
  Operation operation = Operation::forward;
  Epilogue epilogue = {};
  DType dtype = DType::bf16;
  std::int32_t workers = 4;
};

/// Images that tiles cover and that they do not, taps that reach far, items of both kinds, rounds and splits.
const std::vector<Launch> kLaunches{
    {"kernel=3x3 padding=1 input=28x16", {32, 32}, "tile_n=224 stages=3 rows=2 merge=2"},
    {"kernel=3x3 padding=1 input=28x16", {32, 32}, "tile_n=112 stages=2 rows=2 merge=2 in_flight=2"},
    {"kernel=3x3 padding=1 input=30x13", {32, 32}, "tile_n=256 stages=2 rows=1 merge=4"},
    {"kernel=3x3 padding=1 input=9x30", {64, 64}, "tile_n=64 stages=2 rows=2 merge=1"},
    {"kernel=3x3 padding=1 input=20x13", {128, 32}, "tile_n=128 stages=3 rows=1 merge=1"},
    {"kernel=5x3 dilation=2 padding=3 input=20x21", {32, 64}, "tile_n=192 stages=2 rows=2 merge=2"},
    {"kernel=3x3x3 padding=1 input=3x9x10", {32, 32}, "tile_n=64 stages=3 rows=2 merge=2"},
    {"kernel=3x3 padding=1 input=30x13",
     {32, 32},
     "tile_n=224 stages=3 rows=2 merge=2",
     Operation::grad_input},
    {"kernel=3x3 padding=1 input=30x13",
     {64, 64},
     "tile_n=128 stages=2 rows=2 merge=1",
     Operation::grad_input},
    {"kernel=3x3 padding=1 input=30x13",
     {32, 32},
     "tile_n=224 stages=3 rows=2 merge=2",
     Operation::forward,
     {.activation = Activation::relu, .residual = true},
     DType::f16},
    {"kernel=3x3 stride=2 padding=1 input=56x32", {32, 32}, "tile_n=112 stages=2 rows=2 merge=2"},
    {"kernel=3x3 stride=2 padding=1 input=41x27", {64, 64}, "tile_n=64 stages=2 rows=2 merge=1"},
    {"kernel=1x1 stride=2 input=41x27", {64, 64}, "tile_n=64 stages=2 rows=2 merge=1"},
    {"kernel=5x3 stride=2x1 dilation=1x2 padding=2 input=37x20",
     {64, 32},
     "tile_n=64 stages=2 rows=2 merge=1"},
    {"kernel=3x3x3 stride=2 padding=1 input=5x19x20", {32, 32}, "tile_n=64 stages=2 rows=2 merge=2"},
    {"kernel=3x3 stride=2 padding=1 input=56x32",
     {32, 32},
     "tile_n=224 stages=3 rows=2 merge=2",
     Operation::grad_input},
    {"kernel=3x3 stride=2 padding=1 input=41x27",
     {64, 64},
     "tile_n=64 stages=3 rows=2 merge=1",
     Operation::grad_input},
    {"kernel=3x3 padding=1 input=14x8",
     {32, 32},
     "tile_n=112 stages=3 rows=2 merge=2 split_saves=0",
     Operation::forward,
     {},
     DType::bf16,
     16},
};

struct Counted {
  std::string what;
  Resources resources;
  cuda::Work expected;
  bool splits = false;
  std::int64_t bytes = 0;
  std::int64_t products = 0;
  std::int64_t others = 0;
  bool conflicts = false;
};

Counted count(const Launch& launch) {
  constexpr std::int64_t kImages = 2;
  const Layout layout = patterns::random(6, 5, 0.4, 3);
  const Options options = {
      .block = launch.block,
      .batch = kImages,
      .dtype = launch.dtype,
      .operation = launch.operation,
      .epilogue = launch.epilogue,
      .convolution = parse_convolution(launch.geometry),
      .target = fmt::format("emulated:sm_90:{}", launch.workers),
      .config = parse_config(fmt::format("halo warps=12 table=constant {}", launch.numbers))};
  const DefaultLaunch made = launch_once(layout, options);
  const Spmm product(made.problem);
  const Schedule schedule = make_schedule(product, made.target(), made.config, kImages);
  Counted counted{.what = fmt::format("{} of '{}', block {}, '{}'", name(launch.operation), launch.geometry,
                                      to_string(launch.block), to_string(made.config)),
                  .resources = made.resources(),
                  .expected = cuda::work_of(product, made.target(), made.config, schedule, kImages),
                  .splits = schedule.counters > 0};
  for (const cuda::CountedLine& line : made.lines) {
    counted.bytes += static_cast<std::int64_t>(line.global_bytes);
    (line.tensor_operations > 0 ? counted.products : counted.others) +=
        static_cast<std::int64_t>(line.executed);
    counted.conflicts = counted.conflicts || line.shared_wavefronts != line.shared_ideal;
  }
  return counted;
}

const std::vector<Counted>& all() {
  static const std::vector<Counted> counted = [] {
    std::vector<Counted> result;
    for (const Launch& launch : kLaunches) result.push_back(count(launch));
    return result;
  }();
  return counted;
}

}  // namespace

TEST_CASE("no kernel of halo spills a register or meets a bank conflict") {
  for (const Counted& run : all()) {
    CHECK_MESSAGE(run.resources.spill_store_bytes + run.resources.stack_bytes == 0, run.what);
    CHECK_MESSAGE(!run.conflicts, run.what);
  }
}

TEST_CASE("a stage of x of halo is loaded once for all taps of a column, and the model knows each byte") {
  int split = 0;
  for (const Counted& run : all()) {
    CHECK_MESSAGE(run.expected.global_bytes == run.bytes, run.what);
    split += run.splits;
  }
  CHECK(split > 0);
}

TEST_CASE("the cost model knows each product of halo, and all other instructions within 20 %") {
  for (const Counted& run : all()) {
    CHECK_MESSAGE(run.expected.products == run.products, run.what);
    const double ratio = static_cast<double>(run.expected.instructions) / static_cast<double>(run.others);
    CHECK_MESSAGE(ratio > 0.8, run.what << ": " << ratio << " of " << run.others);
    CHECK_MESSAGE(ratio < 1.2, run.what << ": " << ratio << " of " << run.others);
  }
}

}  // namespace sparsekiln::test
