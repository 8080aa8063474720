// Convolutions whose layout is attached, on the cpu: how their code chooses strips (Geometry) by the layout.

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/patterns.h>

#include "compiler/attach.h"
#include "compiler/build.h"
#include "runtime/open_device.h"
#include "runtime/resident_spmm.h"
#include "tests/runtime/cpu/product_fixture.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::array kProducts = {Operation::forward, Operation::grad_input};

Problem convolution_of(const std::string& text, Layout layout, std::int64_t n, Operation operation) {
  Problem problem = product_of(std::move(layout), {16, 16}, n, DType::f32, DType::f32, operation);
  problem.convolution = parse_convolution(text);
  return problem;
}

Binary shared_binary(const Problem& problem, const Target& target, Config config) {
  config.table = TableForm::attached;
  return build_binary(problem, target, {{problem.batch.bound(), config}});
}

std::vector<std::byte> bytes_of(const Binary& binary, const Problem& problem, std::int64_t n) {
  const Kernel kernel = load(std::make_shared<const Binary>(binary));
  const HostInputs inputs = make_inputs(problem, n, Inputs::random, 4);
  PoisonedOutput output(problem, n);
  ResidentSpmm operands(kernel, problem, sparsekiln::open_device("cpu"), inputs, output);
  kernel(operands[0]);
  operands.fetch(output);
  return {output.image().begin(), output.image().end()};
}

bool has_bits_of_baked(const Binary& attached, const Problem& problem, const Config& config, std::int64_t n) {
  const Binary baked = build_binary(problem, attached.target, {{problem.batch.bound(), config}});
  return bytes_of(attached, problem, n) == bytes_of(baked, problem, n);
}

TEST_CASE("layouts of few features have longer strips, with the bits of the baked convolution") {
  const Config config = vector_config(32);
  for (const Operation operation : kProducts)
    for (const ActivationOrder order : {ActivationOrder::batch_major, ActivationOrder::feature_major}) {
      Problem problem =
          convolution_of("kernel=3x3 padding=1 input=30x31", patterns::random(3, 3, 0.5, 1), 3, operation);
      problem.order = order;
      const Target target{Target::Kind::cpu, host_level(), 1};
      const Binary shared = shared_binary(problem, target, config);
      std::set<std::string> passes;
      for (const std::int64_t side : {1, 8, 24, 70}) {
        problem.layout = patterns::random(side, side, side == 1 ? 1 : 0.1, 7);
        const Binary binary = attach(problem.layout, shared);
        REQUIRE(binary.entries[0].passes.size() == 1);
        passes.insert(binary.entries[0].passes[0]);
        CAPTURE(name(operation));
        CAPTURE(side);
        CHECK(has_bits_of_baked(binary, problem, config, 3));
        CHECK(has_bits_of_baked(binary, problem, config, 1));
        CHECK(attach(problem.layout, attach(patterns::random(2, 2, 1, 1), binary)) == binary);
      }
      CHECK(passes.size() >= 3);
      CHECK(passes.contains("product_strips_of_1"));
    }
}

TEST_CASE("several threads share the tiles of an attached convolution where they are few") {
  const Config config = vector_config(32);
  int alone = 0;
  int shared_out = 0;
  for (const Operation operation : kProducts)
    for (const std::int32_t split : {1, 4}) {
      Config of_split = config;
      of_split.split = split;
      Problem problem = convolution_of("kernel=3x3 stride=2 padding=1 input=9x7",
                                       patterns::random(3, 3, 0.5, 1), 1, operation);
      problem.batch = 1;
      const Target target{Target::Kind::cpu, host_level(), 6};
      const Binary shared = shared_binary(problem, target, of_split);
      for (const std::int64_t side : {1, 4, 20}) {
        problem.layout = patterns::random(side, side, side == 1 ? 0 : 0.6, 3);
        const Binary binary = attach(problem.layout, shared);
        CAPTURE(name(operation));
        CAPTURE(side);
        CHECK(binary.entries[0].passes.size() == (binary.entries[0].workers == 1 ? 1 : 2));
        alone += binary.entries[0].workers == 1;
        shared_out += binary.entries[0].workers > 1;
        CHECK(has_bits_of_baked(binary, problem, of_split, 1));
      }
    }
  CHECK(alone > 0);
  CHECK(shared_out > alone);
}

TEST_CASE("the code of an attached convolution does not depend on the layout that it is made for") {
  for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight})
    for (const DType dtype : {DType::f32, DType::f64}) {
      Problem problem = convolution_of("kernel=3x3 stride=2 padding=1 input=9x7", Layout(), 5, operation);
      problem.dtype = problem.out_dtype = dtype;
      problem.block_scales = true;
      problem.block_scale_gradient = operation == Operation::grad_weight && dtype == DType::f32;
      Config config = vector_config(32);
      if (operation == Operation::grad_weight && dtype == DType::f32) config.stages = 2;
      config.table = TableForm::attached;
      std::set<std::string> sources;
      for (const std::int64_t side : {1, 5, 40}) {
        problem.layout = patterns::random(side, side + 1, 0.5, 1);
        sources.insert(emit_source(problem, {Target::Kind::cpu, host_level(), 2}, {{5, config}}));
      }
      CHECK(sources.size() == 1);
    }
}

}  // namespace
}  // namespace sparsekiln::cpu
