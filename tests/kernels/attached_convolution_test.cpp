// Convolutions whose layout is attached, on the device of this run. That their results are right, and have
// the bits of baked ones, for all geometries and options, is also in convolution_test.cpp.

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "runtime/build_job.h"
#include "runtime/test_launch.h"
#include "tests/kernels/attached_check.h"
#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

constexpr std::array kGeometries{
    "kernel=3x3 padding=1 input=7x6",
    "kernel=3x3 stride=2x3 padding=1 input=9x8",
    "kernel=3x2 stride=2 padding=1 transposed output-padding=1x0 input=4x5",
    "kernel=3 padding=1 input=11 taps=101",
    "kernel=1x1 input=5x5",
};

constexpr std::array kOperations{Operation::forward, Operation::grad_input, Operation::grad_weight};

Options options_for(Operation operation, std::string_view geometry, Batch batch, Precision precision = {}) {
  Options options = Suite::current().options({16, 16}, batch, precision);
  options.operation = operation;
  options.convolution = parse_convolution(geometry);
  options.specialization = Specialization::attached;
  return options;
}

/// More workers than small layouts have rows, so that some rows are split.
std::string many_workers() { return Suite::current().target_with(Suite::current().on_cpu() ? 7 : 132); }

std::string message_of(Kernel kernel, const Layout& layout) {
  try {
    kernel.relayout(layout);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE(
    "an attached convolution takes another layout and the first one again, and its copies keep theirs") {
  const Layout first = patterns::random(3, 5, 0.4, 1);
  for (const Operation operation : kOperations)
    for (const char* const geometry : kGeometries) {
      CAPTURE(geometry);
      CAPTURE(name(operation));
      const Options options = options_for(operation, geometry, 2);
      const Kernel kept = compile(first, options);
      Kernel moved = kept;
      for (const Layout& layout : {patterns::random(3, 5, 0.9, 2), patterns::random(3, 5, 0, 3), first}) {
        CAPTURE(layout.blocks());
        moved.relayout(layout);
        CHECK(moved.binary().operands.blocks == make_problem(layout, options).weight_blocks(layout.blocks()));
        CHECK(attached_failure(moved, layout, options, 2) == "");
      }
      CHECK(attached_failure(kept, first, options, 2) == "");
      CHECK(moved.binary() == kept.binary());
      CHECK(moved.key() == kept.key());
      CHECK(message_of(moved, patterns::random(5, 3, 0.4, 1)).find("the kernel's has 3 x 5") !=
            std::string::npos);
    }
}

TEST_CASE("an attached convolution serves any batch up to its bound, in every type, where rows are split") {
  const Layout layout = patterns::random(2, 12, 0.7, 7);
  bool split = false;
  for (const Precision& precision : Suite::current().precisions())
    for (const Operation operation : kOperations) {
      Options options =
          options_for(operation, "kernel=3x3 stride=2 padding=1 input=6x5", Batch::up_to(9), precision);
      options.target = many_workers();
      const Kernel kernel = compile(layout, options);
      split = split || kernel.workspace_counter_bytes() > 0;
      CAPTURE(precision.to_string());
      CAPTURE(name(operation));
      for (const std::int64_t n : {9, 1}) CHECK(attached_failure(kernel, layout, options, n) == "");
    }
  if (!Suite::current().on_cpu()) CHECK(split);  // otherwise no row is split, and this tests little
}

TEST_CASE(
    "layouts of a convolution, whatever their size, share one compile, and every second is only attached") {
  for (const Operation operation : kOperations) {
    Options options = options_for(operation, "kernel=3x3 stride=2 padding=1 dilation=2 input=9x9", 3);
    options.block_scales = true;
    options.cache_dir = Suite::current().scratch() / "one-compile";
    int compiled = 0;
    for (std::uint64_t i = 0; i < 20; ++i) {
      const Layout layout =
          patterns::random(static_cast<std::int64_t>(1 + i % 7), static_cast<std::int64_t>(1 + i % 5),
                           0.3 + 0.03 * static_cast<double>(i), i);
      const Kernel kernel = compile(layout, options);
      compiled += kernel.from() == From::compiled;
      CHECK(kernel.tier() == Tier::attached);
      const CheckResult result = judged(kernel, make_problem(layout, options), 3, Inputs::small_integers);
      CHECK_MESSAGE(result.ok, result.first_failure);
    }
    CHECK(compiled == 1);
  }
}

TEST_CASE("an attached convolution with an edge bias knows the features of its layout") {
  for (const char* const geometry : {"kernel=3x3 padding=1 input=4x5", "kernel=1x1 input=3x3",
                                     "kernel=3x3 stride=2 padding=1 transposed input=3x4"}) {
    Options options = options_for(Operation::forward, geometry, 2);
    options.epilogue.edge_bias = true;
    for (const std::int64_t rows : {4, 1}) {
      const Layout layout = patterns::random(rows, 3, 0.6, 5);
      CAPTURE(geometry);
      CAPTURE(rows);
      CHECK(attached_failure(compile(layout, options), layout, options, 2) == "");
    }
  }
}

TEST_CASE("an attached convolution with partial edge blocks keeps its features with another layout") {
  for (const Operation operation : kOperations)
    for (const char* const geometry : kGeometries) {
      Options options = options_for(operation, geometry, 2);
      const bool transposed = options.convolution.transposed;
      (transposed ? options.in_features : options.out_features) = 3 * 16 - 5;
      (transposed ? options.out_features : options.in_features) = 5 * 16 - 3;
      options.alignment = 4;
      Kernel kernel = compile(patterns::random(3, 5, 0.4, 1), options);
      const Layout second = patterns::random(3, 5, 0.8, 2);
      kernel.relayout(second);
      CAPTURE(geometry);
      CAPTURE(name(operation));
      CHECK(kernel.binary().operands.in_features == options.in_features);
      CHECK(kernel.binary().operands.out_features == options.out_features);
      CHECK(attached_failure(kernel, second, options, 2) == "");
    }
}

TEST_CASE("a convolution with a mask of taps for each block has its layout in its code, and says so") {
  const Layout layout = patterns::random(2, 2, 1, 1);
  Options options = options_for(Operation::forward, "kernel=3 padding=1 input=8 taps=111110101111", 2);
  for (const Specialization specialization : {Specialization::attached, Specialization::tiered}) {
    options.specialization = specialization;
    if (specialization == Specialization::tiered && Suite::current().on_cpu()) continue;  // baked at once
    try {
      (void)compile(layout, options);
      FAIL("it is compiled");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::invalid_argument);
      CHECK(std::string_view(error.what()).find("a mask of 3 taps for all blocks") != std::string::npos);
    }
  }
  options.specialization = Specialization::baked;
  CHECK(message_of(compile(layout, options), layout).find("with a mask for all blocks") != std::string::npos);
}
