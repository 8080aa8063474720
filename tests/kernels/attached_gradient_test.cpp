// Gradients of the weight whose layout is attached, on the device of this run.

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include <sparsekiln/patterns.h>

#include "tests/kernels/attached_check.h"
#include "tests/kernels/layouts.h"
#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

/// One way to compute a gradient of the weight.
struct Way {
  std::string config;  ///< empty: the default
  BlockShape block;
  std::int64_t n;
  Precision precision = {};
};

std::vector<Way> ways() {
  if (Suite::current().on_cpu()) return {{"", {16, 8}, 33}, {"", {32, 32}, 70, {DType::bf16}}};
  const Target target = Suite::current().device()->target();
  std::vector<Way> all{
      {"", {16, 32}, 45},
      {"simt tile_n=16 tile_out=4 stages=2 warps=2 rows=2", {8, 16}, 45},
      {"mma tile_n=32 stages=2 warps=4 rows=4", {16, 16}, 70, {DType::f16}},
      {"mma tile_n=32 stages=2 warps=2 rows=1 split=2", {32, 16}, 70, {DType::f16}},
  };
  if (target.compute_capability() != 90) return all;
  all.push_back({"wgmma tile_n=64 stages=3 warps=12 rows=2", {64, 64}, 200, {DType::bf16}});
  all.push_back({"wgmma tile_n=64 stages=3 warps=12", {128, 128}, 200, {DType::f16}});
  all.push_back({"grouped tile_n=32 stages=3 warps=16 rows=6", {64, 64}, 900, {DType::bf16}});
  all.push_back({"grouped tile_n=32 stages=4 warps=16 rows=12", {128, 64}, 100, {DType::f16}});
  return all;
}

Options options_of(const Way& way, bool bias_gradient) {
  Options options = Suite::current().options(way.block, way.n, way.precision);
  options.operation = Operation::grad_weight;
  options.bias_gradient = bias_gradient;
  options.specialization = Specialization::attached;
  if (!way.config.empty()) options.config = parse_config(way.config);
  return options;
}

}  // namespace

TEST_CASE("an attached gradient of the weight computes the same bits as the baked one on every layout") {
  for (const Way& way : ways()) {
    CAPTURE(way.config);
    bool bias = false;
    for (const NamedLayout& named : test_layouts()) {
      CAPTURE(named.name);
      const Layout layout = named.make();
      const Options options = options_of(way, bias);
      CHECK(attached_failure(compile(layout, options), layout, options, way.n) == "");
      bias = !bias;
    }
  }
}

TEST_CASE("an attached gradient of the weight takes another layout and the first one again") {
  for (const Way& way : ways()) {
    CAPTURE(way.config);
    const Options options = options_of(way, true);
    const Layout first = patterns::random(6, 5, 0.4, 1);
    Kernel kernel = compile(first, options);
    for (const double density : {0.0, 1.0, 0.2}) {
      const Layout other = patterns::random(6, 5, density, 2);
      kernel.relayout(other);
      CHECK(attached_failure(kernel, other, options, way.n) == "");
    }
    kernel.relayout(first);
    CHECK(attached_failure(kernel, first, options, way.n) == "");
  }
}

TEST_CASE("an attached gradient of a convolution by halo computes the same bits as the baked one") {
  const Target target = Suite::current().device()->target();
  if (Suite::current().on_cpu() || target.compute_capability() != 90) return;
  for (const std::string_view config : {"halo tile_n=64 stages=2 warps=16 rows=6 table=global",
                                        "halo tile_n=112 stages=2 warps=16 rows=12 table=global"})
    for (const char* const geometry :
         {"kernel=3x3 padding=1 input=14x13", "kernel=3 stride=2 padding=1 input=30"}) {
      Options options = Suite::current().options({32, 32}, 8, {DType::f16});
      options.operation = Operation::grad_weight;
      options.convolution = parse_convolution(geometry);
      options.bias_gradient = true;
      options.specialization = Specialization::attached;
      options.config = parse_config(config);
      CAPTURE(std::string(config));
      CAPTURE(std::string(geometry));
      for (const Layout& layout : {patterns::random(3, 4, 0.6, 1), patterns::random(4, 5, 0.9, 2),
                                   Layout::from_mask(2, 2, std::vector<std::uint8_t>(4))})
        CHECK(attached_failure(compile(layout, options), layout, options, 8) == "");
      // Many CTAs share the groups of few blocks, and none those of many.
      options.epilogue.scale = true;
      Kernel kernel = compile(patterns::random(4, 5, 0.1, 3), options);
      for (const double density : {0.9, 0.0, 0.1}) {
        const Layout other = patterns::random(4, 5, density, 4);
        kernel.relayout(other);
        CHECK(attached_failure(kernel, other, options, 8) == "");
      }
    }
}

TEST_CASE("96 layers, each with a layout of its own, take three compiles in all") {
  Options options = Suite::current().options({32, 32}, Batch::up_to(1 << 20), {DType::f16});
  options.cache_dir = Suite::current().scratch() / "layers";
  options.specialization = Specialization::attached;
  int compiled = 0;
  for (std::uint64_t seed = 0; seed < 96; ++seed) {
    const auto side = static_cast<std::int32_t>(2 + seed % 17);
    const Layout layout = patterns::random(side, side + 3, 0.3, seed);
    for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight}) {
      options.operation = operation;
      options.epilogue.bias = operation == Operation::forward;
      options.bias_gradient = operation == Operation::grad_weight;
      compiled += build(layout, options).from == From::compiled;
    }
  }
  CHECK(compiled == 3);
}

TEST_CASE("an attached gradient of the weight sums several pairs, block scales and what was there") {
  const Layout layout = patterns::random(5, 7, 0.5, 3);
  for (const Way& way : ways()) {
    CAPTURE(way.config);
    Options options = options_of(way, true);
    options.epilogue.scale = true;
    CHECK(attached_failure(compile(layout, options), layout, options, way.n) == "");
    if (way.config.starts_with("wgmma") || way.config.starts_with("grouped")) continue;
    options.block_scales = options.block_scale_gradient = true;
    options.derivative = Activation::gelu;
    CHECK(attached_failure(compile(layout, options), layout, options, way.n) == "");
  }
}
