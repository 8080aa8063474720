#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/patterns.h>

#include "compiler/build.h"
#include "compiler/sddmm.h"
#include "compiler/toolchain.h"
#include "tests/kernels/suite.h"
#include "tests/kernels/table.h"
#include "tests/kernels/two_launches.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

// Gradients of the weight of convolutions by variant halo: where groups, tiles, slices and launches meet, and
// random ones.

namespace {

bool has_halo() {
  const Target& target = Suite::current().device()->target();
  return target.kind == Target::Kind::cuda && target.compute_capability() == 90;
}

Options asked(const char* geometry, BlockShape block, Batch batch, const std::string& numbers,
              std::int32_t workers = 3) {
  Options options = Suite::current().options(block, batch, {DType::bf16});
  options.operation = Operation::grad_weight;
  options.convolution = parse_convolution(geometry);
  options.target = Suite::current().target_with(workers);
  options.config = parse_config("halo warps=16 table=global " + numbers);
  return options;
}

constexpr const char* kPlain = "kernel=3x3 padding=1 input=10x9";

}  // namespace

TEST_CASE("a gradient of a convolution's weight by halo goes on with its stages from group to group") {
  if (!has_halo()) return;
  const Layout layout = patterns::random(5, 4, 0.5, 3);  // 90 pieces for three CTAs
  for (const char* numbers : {"tile_n=64 stages=2 rows=12", "tile_n=32 stages=3 rows=18"})
    CHECK(failure_of_two(layout, asked(kPlain, {32, 32}, 2, numbers), {.n = 2}) == "");
  CHECK(failure_of_two(layout, asked(kPlain, {64, 32}, 1, "tile_n=112 stages=2 rows=6"), {.n = 1}) == "");
  CHECK(failure_of_two(
            layout, asked("kernel=3x3x3 padding=1 input=2x5x9", {32, 64}, 1, "tile_n=48 stages=2 rows=24", 1),
            {.n = 1}) == "");
}

TEST_CASE("slices of a convolution's tiles by halo are added, of fewer images fewer") {
  if (!has_halo()) return;
  const Layout layout = patterns::random(2, 2, 0.5, 3);
  Options options = asked(kPlain, {32, 32}, 20, "tile_n=32 stages=4 rows=12", 8);
  for (const bool scales : {false, true}) {
    options.epilogue.scale = scales;
    const Plan plan{{20, *options.config}};
    Options up_to = options;
    up_to.batch = Batch::up_to(20);
    up_to.config.reset();
    const Problem problem = make_problem(layout, up_to);
    const Kernel kernel = load(std::make_shared<const Binary>(
                                   build_binary(problem, resolve_target(options.target), plan, Toolchain())),
                               options.target);
    CHECK(kernel.workspace_bytes(20) > 0);
    for (const std::int64_t n : {20, 11, 2, 1, 0})
      CHECK(failure_of_two(kernel, problem, {.n = n}, Inputs::random) == "");
  }
}

TEST_CASE(
    "the gradient of a convolution's bias by halo sums each row of blocks once, those without blocks, too") {
  if (!has_halo()) return;
  const Layout some = Layout::from_mask(4, 9, std::vector<std::uint8_t>{0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                                                                        1, 0, 1, 0, 1, 0, 1, 0, 1,  //
                                                                        0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                                                                        1, 1, 1, 1, 1, 1, 1, 1, 1});
  const Layout none = Layout::from_mask(2, 9, std::vector<std::uint8_t>(18, 0));
  for (const Layout& layout : {some, none})
    for (const BlockShape block : {BlockShape{32, 32}, BlockShape{64, 64}, BlockShape{128, 32}})
      for (const std::int64_t n : {0, 1, 9}) {
        CAPTURE(n);
        CAPTURE(layout.blocks());
        Options options = asked(kPlain, block, n, "tile_n=32 stages=2 rows=6", 16);
        options.bias_gradient = true;
        for (const bool scales : {false, true}) {
          options.epilogue.scale = scales;
          CHECK(failure_of_two(layout, options, {.n = n}, Inputs::random) == "");
        }
      }
}

TEST_CASE("a gradient of a convolution's weight by halo is right whatever its tiles have of an image") {
  if (!has_halo()) return;
  const Layout layout = patterns::random(4, 3, 0.4, 3);
  for (const char* geometry :
       {"kernel=3x3 padding=1 input=1x1", "kernel=3x3 input=3x3", "kernel=1x7 padding=3 input=5x4",
        "kernel=3x3 padding=2 dilation=2 input=9x17", "kernel=3x3 padding=0:3x1:0 input=9x17",
        "kernel=3x3 padding=1 transposed input=9x10", "kernel=3x3 padding=1 taps=110010011 input=9x10",
        "kernel=5 padding=2 input=37", "kernel=2x3x3 padding=1 dilation=2x1x1 input=3x4x9",
        "kernel=3x3 stride=2 padding=1 input=12x13", "kernel=1x1 stride=2 input=15x17",
        "kernel=3x3 stride=1x3 dilation=2 padding=2 input=9x17",
        "kernel=3x3 stride=2 padding=1 transposed input=5x6",
        "kernel=2x3x3 stride=2 padding=1 input=3x4x9"}) {
    CAPTURE(geometry);
    for (const std::int64_t n : {0, 1, 3})
      CHECK(failure_of_two(layout, asked(geometry, {32, 32}, n, "tile_n=96 stages=2 rows=30"), {.n = n}) ==
            "");
  }
}

namespace {

using Random = std::mt19937_64;

template <class Value, std::size_t kCount>
Value any(Random& random, const std::array<Value, kCount>& values) {
  return values[random() % kCount];
}

struct Drawn {
  Layout layout;
  Options options;
  TestLaunchShape shape;
};

Convolution draw_geometry(Random& random) {
  Convolution convolution;
  convolution.dimensions = any(random, std::array{1, 2, 2, 2, 3});
  const auto up_to = [&](std::int32_t most) { return static_cast<std::int32_t>(random() % (most + 1u)); };
  for (auto i = static_cast<std::size_t>(3 - convolution.dimensions); i < 3; ++i) {
    convolution.kernel[i] = any(random, std::array{1, 2, 3, 3, 3, 5});
    convolution.dilation[i] = any(random, std::array{1, 1, 2});
    convolution.stride[i] = any(random, std::array{1, 1, 1, 2, 3});
    convolution.padding_before[i] = up_to(3);
    convolution.padding_after[i] = up_to(3);
    convolution.input[i] = 1 + up_to(i == 0 ? 3 : i == 1 ? 33 : 25);
  }
  convolution.transposed = random() % 5 == 0;
  return convolution;
}

Drawn draw(std::uint64_t seed) {
  Random random(seed);
  const auto rows = 1 + static_cast<std::int32_t>(random() % 6);
  const auto cols = 1 + static_cast<std::int32_t>(random() % 6);
  const auto n = any(random, std::array<std::int64_t, 4>{0, 1, 3, 10});
  const BlockShape block{any(random, std::array{32, 32, 64, 96, 128}), any(random, std::array{32, 32, 64})};
  Options options = asked(kPlain, block, n, "", any(random, std::array{1, 3, 16, 132}));
  options.convolution = draw_geometry(random);
  options.dtype = any(random, std::array{DType::f16, DType::bf16});
  options.out_dtype = any(random, std::array{options.dtype, options.dtype, DType::f32});
  options.epilogue.scale = random() % 2 == 0;
  options.bias_gradient = !options.convolution.transposed && random() % 2 == 0;
  options.overlap_launches = random() % 4 == 0;
  options.config->tile_n = any(random, std::array{16, 32, 64, 96, 112, 128, 256});
  options.config->stages = 2 + static_cast<std::int32_t>(random() % 4);
  options.config->rows = 6 * (1 + static_cast<std::int32_t>(random() % 7));
  options.config->table = any(random, std::array{TableForm::constant, TableForm::global});
  return {patterns::random(rows, cols, any(random, std::array{0.1, 0.4, 1.0}), seed),
          options,
          {.n = n, .padding = any(random, std::array<std::int64_t, 3>{0, 0, 16})}};
}

/// Whether the numbers go together, on a problem that the emulator computes in a second or so.
bool goes_together(const Drawn& drawn) {
  constexpr double kMostProducts = 1e8;
  try {
    validate(drawn.options.convolution);
    const Problem problem = make_problem(drawn.layout, drawn.options);
    const ConfigCheck check(problem, resolve_target(drawn.options.target));
    if (!check.refusal(*drawn.options.config).empty()) return false;
    const Sddmm gradient(problem);
    return static_cast<double>(gradient.tiled_rows(drawn.shape.n, *drawn.options.config)) *
               static_cast<double>(gradient.layout.blocks()) *
               static_cast<double>(gradient.block_elements()) <
           kMostProducts;
  } catch (const Error&) {
    return false;  // no such convolution
  }
}

}  // namespace

TEST_CASE("random gradients of convolutions' weights are computed right by random configs of halo" *
          doctest::test_suite("tables")) {
  if (!has_halo()) return;
  const std::size_t wanted = Suite::current().only_pairs() ? 16 : 150;
  const std::uint64_t first = 1000033 * Suite::seed_of_today();
  std::vector<sparsekiln::test::Part> parts;
  std::size_t drawn_so_far = 0;
  for (; parts.size() < wanted && drawn_so_far < 200 * wanted; ++drawn_so_far) {
    const Drawn drawn = draw(first + drawn_so_far);
    if (!goes_together(drawn)) continue;
    const Options& options = drawn.options;
    parts.push_back(
        {fmt::format("SPARSEKILN_TEST_SEED={}, draw {}: {} to {} of '{}', {} x {} blocks of {}, {} "
                     "images, {} elements between rows, {}",
                     Suite::seed_of_today(), drawn_so_far, name(options.dtype), name(*options.out_dtype),
                     to_string(options.convolution), drawn.layout.rows(), drawn.layout.cols(),
                     to_string(options.block), drawn.shape.n, drawn.shape.padding,
                     to_string(*options.config)),
         drawn.layout, options, [drawn] {
           const std::string integers = failure_of_two(drawn.layout, drawn.options, drawn.shape);
           return integers.empty() ? failure_of_two(drawn.layout, drawn.options, drawn.shape, Inputs::random)
                                   : integers;
         }});
  }
  CHECK(parts.size() == wanted);
  run_table(parts);
}
