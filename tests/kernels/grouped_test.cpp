#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/patterns.h>

#include "compiler/build.h"
#include "compiler/toolchain.h"
#include "tests/kernels/suite.h"
#include "tests/kernels/table.h"
#include "tests/kernels/two_launches.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

// Gradients of the weight whose CTAs sum many blocks at once, on sm_90a: where groups, slices of the batch
// and launches meet. The case list of sddmm_test.cpp has their types and what else is computed.

namespace {

bool has_grouped() {
  const Target& target = Suite::current().device()->target();
  return target.kind == Target::Kind::cuda && target.compute_capability() == 90;
}

Options asked(BlockShape block, Batch batch, const char* numbers, std::int32_t workers = 3) {
  Options options = Suite::current().options(block, batch, {DType::bf16});
  options.operation = Operation::grad_weight;
  options.target = Suite::current().target_with(workers);
  options.config = parse_config(std::string("grouped tile_n=32 warps=16 table=global ") + numbers);
  return options;
}

}  // namespace

TEST_CASE("a CTA of variant grouped goes on with its stages from one group to the next") {
  if (!has_grouped()) return;
  const Layout layout = patterns::random(9, 7, 0.6, 3);  // 38 blocks for three CTAs
  for (const char* numbers : {"stages=3 rows=12", "stages=4 rows=6", "stages=6 rows=12"})
    CHECK(failure_of_two(layout, asked({64, 64}, 150, numbers), {.n = 150, .pairs = 3}).empty());
  CHECK(failure_of_two(layout, asked({64, 128}, 70, "stages=4 rows=12"), {.n = 70, .pairs = 8}).empty());
  CHECK(failure_of_two(layout, asked({128, 128}, 65, "stages=5 rows=12", 1), {.n = 65, .pairs = 2}).empty());
}

TEST_CASE("slices of the batch of variant grouped are combined, of smaller batches fewer") {
  if (!has_grouped()) return;
  const Layout layout = patterns::random(4, 4, 0.5, 3);
  for (const bool bias : {false, true}) {
    Options options = asked({64, 64}, 1100, "stages=4 rows=12", 8);
    options.bias_gradient = bias;
    options.epilogue.scale = bias;  // with both, a kernel has most parameters
    const Plan plan{{1100, *options.config}};
    options.batch = Batch::up_to(1100);
    options.config.reset();
    const Problem problem = make_problem(layout, options);
    const Kernel kernel = load(std::make_shared<const Binary>(
                                   build_binary(problem, resolve_target(options.target), plan, Toolchain())),
                               options.target);
    CHECK(kernel.workspace_bytes(1100) > 0);
    for (const std::int64_t n : {1100, 800, 300, 31})
      CHECK(failure_of_two(kernel, problem, {.n = n, .pairs = 2}, Inputs::random).empty());
  }
}

TEST_CASE("variant grouped sums fewer blocks than there are CTAs, and writes zeros without batch rows") {
  if (!has_grouped()) return;
  const Layout one = patterns::random(1, 1, 1, 1);
  CHECK(failure_of_two(one, asked({64, 64}, 40, "stages=4 rows=12", 8), {.n = 40}).empty());
  CHECK(
      failure_of_two(patterns::random(5, 9, 0.1, 2), asked({128, 64}, 33, "stages=3 rows=6", 132), {.n = 33})
          .empty());
  CHECK(failure_of_two(patterns::random(3, 7, 0.6, 3), asked({64, 64}, 0, "stages=4 rows=12"), {.n = 0})
            .empty());
}

TEST_CASE("variant grouped has the gradient of the bias, of block rows without blocks too") {
  if (!has_grouped()) return;
  std::vector<std::uint8_t> mask(30 * 3, 0);
  mask[3] = mask[5] = mask[12] = mask[13] = mask[14] = 1;  // of the second row and the fifth
  const Layout layout = Layout::from_mask(30, 3, mask);
  for (const BlockShape block : {BlockShape{64, 64}, BlockShape{128, 64}}) {
    Options options = asked(block, 150, "stages=4 rows=12", 2);
    options.bias_gradient = true;
    options.epilogue.scale = true;
    CHECK(failure_of_two(layout, options, {.n = 150, .pairs = 2}).empty());
    options.overlap_launches = true;
    options.out_dtype = DType::f32;
    CHECK(
        failure_of_two(layout, options, {.n = 150, .padding = 16, .pairs = 2, .accumulates = false}).empty());
  }
}

TEST_CASE("random gradients of the weight are computed right by random configs of variant grouped" *
          doctest::test_suite("tables")) {
  if (!has_grouped()) return;
  const std::size_t wanted = Suite::current().only_pairs() ? 12 : 100;
  const std::uint64_t first = 1000033 * Suite::seed_of_today();
  std::vector<Part> parts;
  for (std::size_t draw = 0; draw < wanted; ++draw) {
    std::mt19937_64 random(first + draw);
    const auto any = [&](const auto& values) { return values[random() % values.size()]; };
    const auto rows = 1 + static_cast<std::int32_t>(random() % 9);
    const auto cols = 1 + static_cast<std::int32_t>(random() % 9);
    const BlockShape block{any(std::array{64, 64, 128}), any(std::array{64, 64, 128})};
    const auto n = any(std::array<std::int64_t, 9>{1, 31, 32, 33, 64, 130, 257, 300, 520});
    const std::string numbers =
        fmt::format("stages={} rows={} table={}", 3 + random() % 4, any(std::array{6, 12}),
                    name(any(std::array{TableForm::constant, TableForm::global})));
    Options options = asked(block, Batch(n), numbers.c_str(), any(std::array{1, 2, 5, 16, 132}));
    options.dtype = any(std::array{DType::f16, DType::bf16});
    options.out_dtype = any(std::array{options.dtype, options.dtype, DType::f32});
    options.epilogue.scale = random() % 2 == 0;
    options.bias_gradient = random() % 2 == 0;
    options.overlap_launches = random() % 4 == 0;
    const TestLaunchShape shape{.n = n,
                                .padding = any(std::array<std::int64_t, 3>{0, 0, 16}),
                                .pairs = any(std::array<std::int64_t, 3>{1, 1, 3})};
    const Layout layout = patterns::random(rows, cols, any(std::array{0.1, 0.4, 1.0}), first + draw);
    parts.push_back(
        {fmt::format("SPARSEKILN_TEST_SEED={}, draw {}: {} to {}, {} of {} x {} blocks of {}, batch "
                     "{}, {} pairs, {}",
                     Suite::seed_of_today(), draw, name(options.dtype), name(*options.out_dtype),
                     layout.blocks(), rows, cols, to_string(block), n, shape.pairs,
                     to_string(*options.config)),
         layout, options, [layout, options, shape] {
           const std::string integers = failure_of_two(layout, options, shape);
           return integers.empty() ? failure_of_two(layout, options, shape, Inputs::random) : integers;
         }});
  }
  run_table(parts);
}
