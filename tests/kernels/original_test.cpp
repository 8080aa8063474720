#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/patterns.h>

#include "runtime/test_launch.h"
#include "tests/kernels/pairwise.h"
#include "tests/kernels/suite.h"
#include "tests/kernels/table.h"

// The test cases of OpenAI's blocksparse (2017): layouts, block sizes, batches and depths. They have full
// width on the cpu and on a GPU; the emulator has graphs of fewer blocks.

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

/// For the device of this run, unchanged.
Options options_of(std::int32_t block, std::int64_t n, Operation operation) {
  Options options = Suite::current().options({block, block}, n);
  options.operation = operation;
  return options;
}

/// The fault of one launch on small integers; empty if there is none.
std::string wrong(const Layout& layout, const Options& options, TestLaunchShape launch) {
  const Kernel kernel = compile(layout, options);
  const auto test_launch = make_test_launch(make_problem(layout, options), launch, Inputs::small_integers, 1);
  const auto layer = test_launch->place(kernel, Suite::current().device());
  layer->launch(kernel);
  Suite::current().device()->synchronize();
  return layer->judge(kernel.binary().plan, nullptr).first_failure;
}

/// A Barabási–Albert graph with its diagonal; of n blocks, or few.
Layout graph(std::int32_t n, std::int32_t m) {
  if (Suite::current().emulated()) return patterns::barabasi_albert(14, 3, true, 1);
  return patterns::barabasi_albert(n, m, true, 1);
}

constexpr std::array kOperations{Operation::forward, Operation::grad_input, Operation::grad_weight};

}  // namespace

TEST_CASE("a Barabási-Albert layer of 160 blocks, all block sizes, batches, operations and orders" *
          doctest::test_suite("tables")) {
  constexpr std::array kBlocks{8, 16, 32};
  constexpr std::array<std::int64_t, 6> kBatches{8, 16, 32, 64, 128, 256};
  constexpr std::array kOrders{ActivationOrder::batch_major, ActivationOrder::feature_major};
  const Layout layout = graph(160, 5);
  const auto value = [](const auto& values, int number) { return values[static_cast<std::size_t>(number)]; };
  const auto fits = [&](const Row& row) {
    return !Suite::current().emulated() || row[0] == kUnset || row[1] == kUnset ||
           value(kBlocks, row[0]) * value(kBatches, row[1]) <= 1024;
  };
  const std::array sizes{3, 6, 3, 2};
  const std::vector<Row> rows =
      Suite::current().only_pairs() ? pairwise(sizes, fits).rows : product(sizes, fits);
  std::vector<Part> parts;
  for (const Row& row : rows) {
    const std::int32_t block = value(kBlocks, row[0]);
    const std::int64_t n = value(kBatches, row[1]);
    Options options = options_of(block, n, value(kOperations, row[2]));
    options.order = value(kOrders, row[3]);
    parts.push_back(
        {fmt::format("block {}, n {}, {} {}", block, n, name(options.operation), name(options.order)), layout,
         options, [&layout, options, n] { return wrong(layout, options, {.n = n}); }});
  }
  run_table(parts);
}

TEST_CASE("a recurrent layer of 448 blocks, eight steps deep, whose gradient of the weight is grouped") {
  Options options = options_of(32, 64, Operation::grad_weight);
  CHECK(wrong(graph(448, 8), options, {.n = 64, .pairs = 8}) == "");
  options.epilogue.scale = true;
  CHECK(wrong(graph(160, 5), options, {.n = 64, .pairs = 8, .accumulates = true}) == "");
}

TEST_CASE("scales of the blocks of a checkerboard") {
  std::vector<std::uint8_t> mask;
  for (int row = 0; row < 8; ++row)
    for (int col = 0; col < 8; ++col) mask.push_back((row + col) % 2 == 0 ? 1 : 0);
  const Layout layout = Layout::from_mask(8, 8, mask);
  for (const std::int32_t block : {32, 16, 8})
    for (const Operation operation : kOperations) {
      CAPTURE(block);
      CAPTURE(name(operation));
      Options options = options_of(block, 64, operation);
      options.block_scales = true;
      options.block_scale_gradient = operation == Operation::grad_weight;
      CHECK(wrong(layout, options, {.n = 64}) == "");
    }
}
