#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sparsekiln/patterns.h>

#include "compiler/build.h"
#include "compiler/toolchain.h"
#include "runtime/test_launch.h"
#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

// Kernels that the copy engine and wgmma make on sm_90a, where stages, tiles, items and launches meet. The
// case list has their numbers and epilogues.

namespace {

bool has_wgmma() {
  const Target& target = Suite::current().device()->target();
  return target.kind == Target::Kind::cuda && target.compute_capability() == 90;
}

Options asked(BlockShape block, Batch batch, const char* numbers, std::int32_t workers = 3) {
  Options options = Suite::current().options(block, batch, {DType::f16});
  options.target = Suite::current().target_with(workers);
  options.config = parse_config(std::string("wgmma warps=12 ") + numbers);
  return options;
}

/// Two launches: the second finds counters as the first one left them.
void check_right(const Layout& layout, const Options& options, std::int64_t n) {
  CAPTURE(to_string(*options.config));
  const Kernel kernel = compile(layout, options);
  const Problem problem = make_problem(layout, options);
  for (int i = 0; i < 2; ++i) {
    CAPTURE(Suite::current().take_seed(static_cast<std::size_t>(i)));
    const CheckResult result =
        launch_and_check(kernel, problem, make_inputs(problem, n, Inputs::small_integers, 5));
    CHECK_MESSAGE(result.ok, result.first_failure);
  }
}

/// Two launches of a gradient of the weight: the second finds counters as the first one left them.
void check_gradient(const Layout& layout, const Options& options, const TestLaunchShape& shape) {
  CAPTURE(to_string(*options.config));
  const Kernel kernel = compile(layout, options);
  const auto launch = make_test_launch(make_problem(layout, options), shape, Inputs::small_integers, 5);
  for (int i = 0; i < 2; ++i) {
    CAPTURE(Suite::current().take_seed(static_cast<std::size_t>(i)));
    const auto operands = launch->place(kernel, Suite::current().device());
    operands->launch(kernel);
    Suite::current().device()->synchronize();
    const CheckResult result = operands->judge(kernel.binary().plan, nullptr);
    CHECK_MESSAGE(result.ok, result.first_failure);
  }
}

Options asked_gradient(BlockShape block, Batch batch, const char* numbers, std::int32_t workers = 3) {
  Options options = asked(block, batch, numbers, workers);
  options.operation = Operation::grad_weight;
  return options;
}

}  // namespace

TEST_CASE("wgmma goes on with its stages from one batch tile to the next, the last of which is partial") {
  if (!has_wgmma()) return;
  const Layout layout = patterns::random(3, 4, 0.6, 3);
  check_right(layout, asked({64, 64}, 300, "tile_n=128 stages=2 in_flight=1"), 300);
  check_right(layout, asked({64, 128}, 300, "tile_n=128 stages=3 in_flight=2 rows=2"), 300);
  Options gradient = asked({128, 64}, 300, "tile_n=256 stages=3 in_flight=1");
  gradient.operation = Operation::grad_input;
  check_right(layout, gradient, 300);
}

TEST_CASE("wgmma merges block rows of a gradient, whose blocks it reads by columns") {
  if (!has_wgmma()) return;
  for (const auto& [block, numbers] : {std::pair{BlockShape{64, 64}, "tile_n=128 stages=2 merge=4 cluster=2"},
                                       std::pair{BlockShape{64, 128}, "tile_n=128 stages=3 merge=2"}}) {
    Options gradient = asked(block, 200, numbers);
    gradient.operation = Operation::grad_input;
    check_right(patterns::random(5, 6, 0.6, 3), gradient, 200);
  }
}

TEST_CASE("clusters of wgmma share the weight, and an odd batch tile takes part in that") {
  if (!has_wgmma()) return;
  const Layout layout = patterns::random(3, 4, 0.6, 3);
  check_right(layout, asked({64, 64}, 128, "tile_n=128 stages=2 cluster=2"), 128);  // one tile for two CTAs
  check_right(layout, asked({64, 64}, 300, "tile_n=128 stages=3 cluster=2 rows=2"), 300);
  check_right(layout, asked({64, 64}, 600, "tile_n=128 stages=3 cluster=2 merge=2 in_flight=2"), 600);
  check_right(patterns::random(2, 24, 0.7, 3), asked({64, 64}, 300, "tile_n=128 stages=3 cluster=2", 8), 300);
  Options options = asked({128, 64}, 300, "tile_n=128 stages=3 cluster=2");
  options.operation = Operation::grad_input;
  check_right(layout, options, 300);
  options.operation = Operation::forward;
  options.epilogue = {.activation = Activation::silu, .glu = true};
  options.overlap_launches = true;
  options.block = {64, 64};
  check_right(layout, options, 300);
}

TEST_CASE("clusters of wgmma share x, whichever of their rows need it") {
  if (!has_wgmma()) return;
  // Five rows leave one without a partner, two of the others are empty, and two share no column.
  std::vector<std::uint8_t> mask(5 * 7, 0);
  for (const std::size_t block : {0, 2, 4, 7, 9, 10, 13, 21, 22, 26}) mask[block] = 1;
  const Layout few = Layout::from_mask(5, 7, mask);
  for (const char* numbers :
       {"tile_n=128 stages=2 cluster_rows=2", "tile_n=128 stages=3 cluster_rows=2 rows=2",
        "tile_n=128 stages=2 cluster_rows=2 cluster=2", "tile_n=256 stages=3 cluster_rows=2 in_flight=1",
        "tile_n=128 stages=3 cluster_rows=2 cluster=2 merge=2"}) {
    check_right(few, asked({64, 64}, 300, numbers, 8), 300);
    check_right(patterns::random(6, 6, 0.6, 3), asked({64, 128}, 300, numbers), 300);
  }
  const Layout long_rows = patterns::random(2, 24, 0.7, 3);
  Options split = asked({64, 64}, 200, "tile_n=128 stages=3 cluster_rows=2", 8);
  CHECK(compile(long_rows, split).workspace_bytes(200) > 0);
  check_right(long_rows, split, 200);
  Options options = asked({128, 64}, 300, "tile_n=128 stages=3 cluster_rows=2");
  options.operation = Operation::grad_input;
  check_right(few, options, 300);
  options.operation = Operation::forward;
  options.epilogue = {.activation = Activation::silu, .glu = true};
  options.overlap_launches = true;
  options.block = {64, 64};
  check_right(few, options, 300);
  options.epilogue = {};
  options.dtype = DType::e4m3;
  options.out_dtype = DType::bf16;
  check_right(few, options, 300);
}

TEST_CASE("rows that several CTAs of wgmma share are combined") {
  if (!has_wgmma()) return;
  const Layout layout = patterns::random(2, 24, 0.7, 3);
  for (const char* numbers :
       {"tile_n=128 stages=3 split_saves=0", "tile_n=128 stages=3 rows=2", "tile_n=128 stages=3 merge=2"}) {
    Options options = asked({64, 64}, 200, numbers, 8);
    CHECK(compile(layout, options).workspace_bytes(200) > 0);  // else no row is split
    check_right(layout, options, 200);
  }
}

TEST_CASE("wgmma writes zeros for block rows that have no blocks") {
  if (!has_wgmma()) return;
  std::vector<std::uint8_t> mask(5 * 3, 0);
  mask[3] = mask[5] = mask[13] = 1;  // of the second row and the last
  const Layout layout = Layout::from_mask(5, 3, mask);
  for (const char* numbers :
       {"tile_n=128 stages=2", "tile_n=128 stages=2 rows=4", "tile_n=128 stages=2 merge=2"})
    check_right(layout, asked({64, 64}, 100, numbers, 2), 100);
}

TEST_CASE("a plan with mma for small batches and wgmma for others serves both") {
  if (!has_wgmma()) return;
  const Layout layout = patterns::random(2, 3, 0.7, 3);
  Options options = Suite::current().options({64, 64}, Batch::up_to(300), {DType::f16});
  const Problem problem = make_problem(layout, options);
  const Plan plan{{64, parse_config("mma tile_n=64 stages=2 warps=2 table=global")},
                  {300, parse_config("wgmma tile_n=128 stages=3 warps=12 table=global")}};
  const Kernel kernel = load(std::make_shared<const Binary>(
                                 build_binary(problem, resolve_target(options.target), plan, Toolchain())),
                             options.target);
  for (const std::int64_t n : {64, 65, 128, 129, 300}) {
    CAPTURE(n);
    const CheckResult result =
        launch_and_check(kernel, problem, make_inputs(problem, n, Inputs::small_integers, 5));
    CHECK_MESSAGE(result.ok, result.first_failure);
  }
}

TEST_CASE("launches of wgmma may begin before those before them have ended") {
  if (!has_wgmma()) return;
  Options options = asked({64, 64}, 130, "tile_n=128 stages=3");
  options.overlap_launches = true;
  options.epilogue = {.scale = true, .bias = true, .residual = true};
  check_right(patterns::random(3, 4, 0.6, 3), options, 130);
}

TEST_CASE("wgmma has the epilogues of gradients of an LSTM's cell, and passes that normalise") {
  if (!has_wgmma()) return;
  Options options = asked({64, 64}, 130, "tile_n=128 stages=3");
  options.epilogue = {.activation = Activation::relu, .layer_norm = true, .multiply = true, .add = true};
  check_right(patterns::random(3, 4, 0.6, 3), options, 130);
  options.epilogue = {.residual = true, .lstm = true};
  options.operation = Operation::grad_input;
  check_right(patterns::random(2, 2, 0.9, 3), options, 130);
}

TEST_CASE("the gradient of the weight by wgmma goes on with its stages from one run and pair to the next") {
  if (!has_wgmma()) return;
  const Layout layout = patterns::random(3, 7, 0.6, 3);
  for (const char* numbers :
       {"tile_n=64 stages=2 rows=2", "tile_n=128 stages=2 rows=4", "tile_n=64 stages=3 rows=8"})
    check_gradient(layout, asked_gradient({64, 64}, 150, numbers), {.n = 150, .pairs = 3});
  check_gradient(layout, asked_gradient({64, 128}, 150, "tile_n=128 stages=3"), {.n = 150, .pairs = 8});
  check_gradient(layout, asked_gradient({128, 64}, 150, "tile_n=64 stages=5 rows=2"), {.n = 150});
  check_gradient(layout, asked_gradient({128, 128}, 150, "tile_n=64 stages=3 rows=2", 1),
                 {.n = 150, .pairs = 2});
}

TEST_CASE("the gradient of the weight by wgmma is zero without batch rows") {
  if (!has_wgmma()) return;
  const Options options = asked_gradient({64, 64}, 0, "tile_n=64 stages=2 rows=2");
  check_gradient(patterns::random(3, 7, 0.6, 3), options, {.n = 0});
}

TEST_CASE("the gradient of the weight by wgmma has that of the bias, of block rows without blocks too") {
  if (!has_wgmma()) return;
  std::vector<std::uint8_t> mask(5 * 3, 0);
  mask[3] = mask[5] = mask[12] = mask[13] = mask[14] = 1;  // of the second row and the last
  const Layout layout = Layout::from_mask(5, 3, mask);
  for (const BlockShape block : {BlockShape{64, 64}, BlockShape{128, 64}}) {
    Options options = asked_gradient(block, 150, "tile_n=64 stages=3 rows=2", 2);
    options.bias_gradient = true;
    options.epilogue.scale = true;
    check_gradient(layout, options, {.n = 150, .pairs = 2});
    options.overlap_launches = true;
    options.out_dtype = DType::f32;
    check_gradient(layout, options, {.n = 150, .padding = 16, .pairs = 2, .accumulates = false});
  }
}

TEST_CASE("a plan of the gradient with mma for small batches and wgmma for others serves both") {
  if (!has_wgmma()) return;
  const Layout layout = patterns::random(2, 3, 0.7, 3);
  Options options = Suite::current().options({64, 64}, Batch::up_to(300), {DType::bf16});
  options.operation = Operation::grad_weight;
  const Problem problem = make_problem(layout, options);
  const Plan plan{{64, parse_config("mma tile_n=32 tile_out=0 stages=2 warps=4 table=global")},
                  {300, parse_config("wgmma tile_n=64 stages=3 warps=12 rows=2 table=global")}};
  const Kernel kernel = load(std::make_shared<const Binary>(
                                 build_binary(problem, resolve_target(options.target), plan, Toolchain())),
                             options.target);
  for (const std::int64_t n : {64, 65, 300}) {
    CAPTURE(n);
    const auto launch = make_test_launch(problem, {.n = n}, Inputs::small_integers, 5);
    const auto operands = launch->place(kernel, Suite::current().device());
    operands->launch(kernel);
    Suite::current().device()->synchronize();
    CHECK(operands->judge(kernel.binary().plan, nullptr).ok);
  }
}

TEST_CASE("launches of wgmma give the same bits, whatever comes first") {
  if (!has_wgmma()) return;
  const Layout layout = patterns::random(2, 24, 0.7, 3);
  const auto check_repeated = [&](Options options, const char* numbers, std::int64_t n) {
    options.config = parse_config(std::string("wgmma warps=12 ") + numbers);
    CAPTURE(name(options.operation));
    CAPTURE(name(options.dtype));
    CAPTURE(numbers);
    const Kernel kernel = compile(layout, options);
    const auto test = make_test_launch(make_problem(layout, options), {.n = n}, Inputs::random, 5);
    std::vector<std::byte> first;
    for (std::size_t i = 0; i < Suite::current().repeats(); ++i) {
      CAPTURE(Suite::current().take_seed(i));
      const auto placed = test->place(kernel, Suite::current().device());
      placed->launch(kernel);
      Suite::current().device()->synchronize();
      std::vector<std::byte> image;
      CHECK(placed->judge(kernel.binary().plan, &image).ok);
      if (i == 0) first = image;
      REQUIRE(image == first);
    }
  };
  Options options = asked({64, 64}, 200, "tile_n=128 stages=3", 8);
  CHECK(compile(layout, options).workspace_bytes(200) > 0);  // else no row is split
  check_repeated(options, "tile_n=128 stages=3", 200);
  check_repeated(options, "tile_n=128 stages=3 rows=2 cluster=2", 200);
  check_repeated(options, "tile_n=128 stages=3 cluster_rows=2", 200);
  options.operation = Operation::grad_input;
  check_repeated(options, "tile_n=128 stages=3", 200);
  options.operation = Operation::grad_weight;
  check_repeated(options, "tile_n=64 stages=3 rows=2", 200);
  options.operation = Operation::forward;
  options.dtype = DType::e4m3;
  check_repeated(options, "tile_n=128 stages=3", 200);
}
