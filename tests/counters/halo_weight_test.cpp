#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/patterns.h>

#include "autotune/cuda/work.h"
#include "compiler/block_runs.h"
#include "compiler/cuda/batch_slices.h"
#include "tests/counters/default_launch.h"

// What the emulator counts of gradients of the weight by variant halo, compared with what the cost model
// expects.

namespace sparsekiln::test {
namespace {

struct Launch {
  const char* geometry;
  BlockShape block;
  const char* numbers;  ///< of the config
  std::int64_t images = 2;
  std::int32_t workers = 4;
  DType dtype = DType::bf16;
};

/// Images that tiles cover and that they do not, several groups for a CTA, and slices.
const std::vector<Launch> kLaunches{
    {"kernel=3x3 padding=1 input=16x16", {32, 32}, "tile_n=64 stages=3 rows=42"},
    {"kernel=3x3 padding=1 input=30x13", {32, 32}, "tile_n=112 stages=2 rows=42"},
    {"kernel=3x3 padding=1 input=9x30", {64, 64}, "tile_n=64 stages=2 rows=18"},
    {"kernel=5x3 dilation=2 padding=3 input=20x21", {32, 64}, "tile_n=128 stages=2 rows=24"},
    {"kernel=3x3x3 padding=1 input=3x9x10", {32, 32}, "tile_n=32 stages=4 rows=30"},
    {"kernel=3x3 padding=1 input=28x16", {32, 32}, "tile_n=32 stages=3 rows=42", 8, 32, DType::f16},
    {"kernel=3x3 padding=1 input=28x16", {128, 32}, "tile_n=64 stages=3 rows=18", 8, 64},
};

struct Counted {
  std::string what;
  Resources resources;
  cuda::Work expected;
  bool slices = false;
  bool has_depths = false;
  std::int64_t bytes = 0;
  std::int64_t products = 0;
  std::int64_t others = 0;
  bool conflicts = false;
};

Counted count(const Launch& launch) {
  const Layout layout = patterns::random(3, 4, 0.5, 3);
  const Options options = {
      .block = launch.block,
      .batch = launch.images,
      .dtype = launch.dtype,
      .operation = Operation::grad_weight,
      .convolution = parse_convolution(launch.geometry),
      .target = fmt::format("emulated:sm_90:{}", launch.workers),
      .config = parse_config(fmt::format("halo warps=16 table=constant {}", launch.numbers))};
  const DefaultLaunch made = launch_once(layout, options);
  const Sddmm gradient(made.problem);
  const BlockRuns schedule = make_block_runs(gradient, made.target(), made.config);
  Counted counted{.what = fmt::format("'{}', block {}, '{}'", launch.geometry, to_string(launch.block),
                                      to_string(made.config)),
                  .resources = made.resources(),
                  .expected = cuda::work_of(gradient, made.target(), made.config, schedule, launch.images),
                  .slices = cuda::batch_slices(gradient, made.target(), made.config, schedule.items()) > 1,
                  .has_depths = options.convolution.kernel[0] > 1};
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

TEST_CASE("no gradient of the weight by halo spills a register or meets a bank conflict") {
  for (const Counted& run : all()) {
    CHECK_MESSAGE(run.resources.spill_store_bytes + run.resources.stack_bytes == 0, run.what);
    CHECK_MESSAGE(!run.conflicts, run.what);
  }
}

TEST_CASE(
    "halo loads a tile of dy and a box of x once for all pieces of a group, and the model knows each byte") {
  int sliced = 0;
  for (const Counted& run : all()) {
    if (!run.has_depths) CHECK_MESSAGE(run.expected.global_bytes == run.bytes, run.what);
    // Boxes of one depth of the kernel may be fewer than those of another, and reach the padding more often.
    const double ratio = static_cast<double>(run.expected.global_bytes) / static_cast<double>(run.bytes);
    CHECK_MESSAGE(std::abs(ratio - 1) < 0.01, run.what << ": " << ratio);
    sliced += run.slices;
  }
  CHECK(sliced > 0);
}

TEST_CASE(
    "the cost model knows each product of halo's gradient of the weight, and other instructions within 20 "
    "%") {
  for (const Counted& run : all()) {
    CHECK_MESSAGE(run.expected.products == run.products, run.what);
    const double ratio = static_cast<double>(run.expected.instructions) / static_cast<double>(run.others);
    CHECK_MESSAGE(ratio > 0.8, run.what << ": " << ratio << " of " << run.others);
    CHECK_MESSAGE(ratio < 1.2, run.what << ": " << ratio << " of " << run.others);
  }
}

}  // namespace sparsekiln::test
