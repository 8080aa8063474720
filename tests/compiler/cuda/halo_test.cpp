// The kernels of convolutions that the copy engine and wgmma make on sm_90a: what they refuse, their shapes,
// and their code through NVRTC.

#include <array>
#include <string_view>
#include <tuple>

#include <doctest/doctest.h>
#include <sparsekiln/convolution.h>

#include "compiler/cuda/halo_shape.h"
#include "tests/compiler/cuda/mma_cases.h"
#include "tests/compiler/cuda/need_nvrtc.h"
#include "tests/compiler/cuda/wgmma_cases.h"

namespace sparsekiln::cuda {
namespace {

constexpr Types kBrain{DType::bf16, DType::bf16};

Problem problem_of(const char* geometry, BlockShape block = {32, 32}, Types types = kBrain) {
  Problem problem = mma_problem(block, 2, types);
  problem.convolution = parse_convolution(geometry);
  return problem;
}

Config config_of(std::int32_t tile_n, std::int32_t stages, std::int32_t rows, std::int32_t merge) {
  Config config = wgmma_config(tile_n, stages, rows, merge);
  config.variant = Variant::halo;
  return config;
}

constexpr const char* kPlain = "kernel=3x3 padding=1 input=20x13";

TEST_CASE("problems that halo does not compute are refused, and mma would work") {
  const auto refused = [](auto change, std::string_view wanted, const Target& target = kHopper) {
    Problem problem = problem_of(kPlain);
    change(problem);
    const std::string why = refusal(problem, target, config_of(64, 2, 2, 2));
    CAPTURE(why);
    CHECK(why.find(wanted) != std::string::npos);
    CHECK(why.find("variant mma would work") != std::string::npos);
  };
  CHECK(refusal(problem_of(kPlain), kHopper, config_of(64, 2, 2, 2)).empty());
  refused([](Problem&) {}, "not for sm_80", {Target::Kind::cuda, "sm_80", 6});
  refused([](Problem&) {}, "not for sm_100", {Target::Kind::cuda, "sm_100", 6});
  refused([](Problem& problem) { problem.convolution = {}; }, "taps read neighbouring positions");
  refused([](Problem& problem) { problem.convolution = parse_convolution("kernel=1x1 input=9x9"); },
          "taps read neighbouring positions");
  refused([](Problem& problem) { problem.convolution.stride = {1, 2, 9}; }, "up to 8 apart, not 2 x 9");
  refused([](Problem& problem) { problem.convolution.dynamic = true; }, "images of one size");
  refused(
      [](Problem& problem) {
        problem.dtype = problem.out_dtype = DType::f32;
        problem.math = Math::tf32;
      },
      "f16 and bf16");
  refused([](Problem& problem) { problem.block = {32, 16}; }, "multiples of 32, not 16");
  refused([](Problem& problem) { problem.block = {16, 32}; }, "32, 64 or 128 outputs, not 16");
  refused([](Problem& problem) { problem.alignment = 8; }, "aligned to 16 bytes");
  refused([](Problem& problem) { problem.block_scales = true; }, "neither block scales nor a derivative");
  refused([](Problem& problem) { problem.cut_in_features = problem.in_features() - 3; }, "whole blocks");
  refused([](Problem& problem) { problem.epilogue = {.activation = Activation::silu, .glu = true}; },
          "one weight, not 2");
}

TEST_CASE("numbers of halo that do not go together are refused, with what would work") {
  const auto refused = [](Config config, std::string_view wanted, BlockShape block = {32, 32},
                          const char* geometry = kPlain) {
    const std::string why = refusal(problem_of(geometry, block), kHopper, config);
    CAPTURE(why);
    CHECK(why.find(wanted) != std::string::npos);
  };
  refused(config_of(96, 2, 2, 2), "64, 112, 128, 192, 224 or 256 positions");
  refused(config_of(64, 1, 2, 2), "stages is 2 to 8");
  refused(config_of(64, 2, 1, 2), "are 128, not 64");
  refused(config_of(64, 2, 4, 1), "are 128, not 128");
  refused(config_of(256, 3, 1, 1), "fewer stages", {128, 128});
  refused(config_of(64, 2, 2, 2), "boxes of the copy engine are of 256", {32, 32},
          "kernel=3x3 dilation=200 padding=400 input=20x13");
  refused(config_of(256, 2, 2, 2), "reach 264 x 64 positions", {32, 32},
          "kernel=9x3 stride=8 padding=8 input=300x80");
  Config config = config_of(64, 2, 2, 2);
  config.warps = 8;
  refused(config, "warps=12 would work");
  config = config_of(64, 2, 2, 2);
  config.table = TableForm::unrolled;
  refused(config, "table=constant would work");
  config = config_of(64, 2, 2, 2);
  config.cluster = 2;
  refused(config, "cluster=1");
  config = config_of(64, 2, 2, 2);
  config.operand_a = OperandA::w;
  refused(config, "leave operand_a out");
}

HaloBox box_of(const char* geometry, std::int32_t tile_n, Operation operation = Operation::forward) {
  Problem problem = problem_of(geometry, {64, 64});
  problem.operation = operation;
  return halo_shape(problem, kHopper, config_of(tile_n, 2, 2, 1)).box;
}

using Extents = Convolution::Extents;

TEST_CASE("a stage of halo has the positions that taps reach from a tile, in boxes of 32 features") {
  const HaloShape plain = halo_shape(problem_of(kPlain), kHopper, config_of(224, 3, 2, 2));
  CHECK(plain.box.extents == Extents{1, 30, 10});
  CHECK(plain.box.first == Extents{0, -1, -1});
  CHECK(plain.box.step == Extents{1, 1, 1});
  CHECK(plain.box.phases == Extents{1, 1, 1});
  CHECK(plain.bytes_x == 30 * 10 * 64);
  CHECK(plain.bytes_w == 64 * 32 * 2);
  CHECK(plain.chunk.columns == 9);
  CHECK(plain.shared_bytes == 3 * 19456 + 2 * plain.stages_w * 4096);
  const char* const wide = "kernel=5x3 dilation=2x1 padding=3x0 input=20x13";
  CHECK(box_of(wide, 64).extents == Extents{1, 16, 10});
  CHECK(box_of(wide, 64).first == Extents{0, -3, 0});
  CHECK(box_of(wide, 64, Operation::grad_input).first == Extents{0, -5, -2});
}

TEST_CASE(
    "a stage of halo has boxes for each residue of the positions that taps read, which skip the others") {
  const HaloShape plain =
      halo_shape(problem_of("kernel=3x3 stride=2 padding=1 input=56x56"), kHopper, config_of(224, 2, 2, 2));
  CHECK(plain.box.extents == Extents{1, 29, 9});
  CHECK(plain.box.first == Extents{0, -1, -1});
  CHECK(plain.box.step == Extents{1, 2, 2});
  CHECK(plain.box.phases == Extents{1, 2, 2});
  CHECK(plain.bytes_x == 4 * 29 * 9 * 64);
  CHECK(plain.shared_bytes == 2 * 4 * 17408 + 2 * plain.stages_w * 4096);
  CHECK(box_of("kernel=1x1 stride=2 input=56x56", 64).phases == Extents{1, 1, 1});
  CHECK(box_of("kernel=1x1 stride=2 input=56x56", 64).extents == Extents{1, 8, 8});
  // An even dilation reads positions of one residue, one of 3 reads both.
  const HaloBox dilated = box_of("kernel=3x3 dilation=2x3 stride=2 padding=2 input=56x56", 64);
  CHECK(dilated.phases == Extents{1, 1, 2});
  CHECK(dilated.extents == Extents{1, 10, 11});
  CHECK(dilated.begin(2, 1, 3) == -1);
  const HaloBox mixed = box_of("kernel=3x2x7 stride=2x1x4 padding=1x0x3 input=9x20x40", 64);
  CHECK(mixed.phases == Extents{1, 1, 4});
  CHECK(mixed.step == Extents{1, 1, 4});
  CHECK(mixed.extents == Extents{1, 9, 9});
}

TEST_CASE("the gradient of a convolution with strides has one box, of the positions that all classes read") {
  const HaloBox plain = box_of("kernel=3x3 stride=2 padding=1 input=56x56", 64, Operation::grad_input);
  CHECK(plain.extents == Extents{1, 9, 9});
  CHECK(plain.first == Extents{0, 0, 0});
  CHECK(plain.step == Extents{1, 1, 1});
  CHECK(plain.phases == Extents{1, 1, 1});
  const HaloBox even = box_of("kernel=4x6 stride=2 padding=1x2 input=56x56", 64, Operation::grad_input);
  CHECK(even.extents == Extents{1, 10, 10});
  CHECK(even.first == Extents{0, -1, -1});
  const HaloBox apart = box_of("kernel=2x2 stride=3 input=56x56", 64, Operation::grad_input);
  CHECK(apart.extents == Extents{1, 8, 8});
}

TEST_CASE(
    "halo has maps of images and of the weight, whose rows it reorders where it does not exchange sums") {
  const auto maps = [](const Problem& problem) {
    const Source source = emit_plan(problem, kHopper, {{2, config_of(224, 2, 2, 1)}});
    CHECK(source.entries.front().rows_of_one == 2 * 224);  // two tiles of 28 x 8 cover 20 x 13
    return source.entries.front().tensor_maps;
  };
  Problem problem = problem_of(kPlain, {64, 32});
  const TensorMap x = maps(problem).at(0);
  CHECK(x.image == std::array<std::int32_t, 3>{1, 20, 13});
  CHECK(x.box_image == std::array<std::int32_t, 3>{1, 30, 10});
  CHECK(x.box_length == 32);
  CHECK(x.swizzle_bytes == 64);
  CHECK(maps(problem).at(1).interleave == 4);
  CHECK(maps(problem).at(1).box_rows == 64);
  problem = problem_of(kPlain, {32, 64});
  problem.operation = Operation::grad_input;
  CHECK(maps(problem).at(1).interleave == 0);
  CHECK(maps(problem).at(1).box_rows == 32);
}

TEST_CASE("a map of images of halo skips the positions between those that points of a tile read") {
  const auto map = [](Operation operation) {
    Problem problem = problem_of("kernel=3x3 stride=2x1 padding=1 input=20x13", {64, 64});
    problem.operation = operation;
    return emit_plan(problem, kHopper, {{2, config_of(64, 2, 2, 1)}}).entries.front().tensor_maps.at(0);
  };
  const TensorMap forward = map(Operation::forward);
  CHECK(forward.image == Extents{1, 20, 13});
  CHECK(forward.box_image == Extents{1, 9, 10});
  CHECK(forward.step_image == Extents{1, 2, 1});
  const TensorMap gradient = map(Operation::grad_input);
  CHECK(gradient.image == Extents{1, 10, 13});
  CHECK(gradient.box_image == Extents{1, 9, 10});
  CHECK(gradient.step_image == Extents{1, 1, 1});
}

void compile_clean(const Problem& problem, const Config& config) {
  CAPTURE(to_string(config));
  CAPTURE(to_string(problem.block));
  CAPTURE(name(problem.operation));
  CHECK(compiled_clean(emit_plan(problem, kHopper, {{problem.batch.bound(), config}})).shared_bytes <=
        kWgmmaStaticShared);
}

TEST_CASE("kernels of halo compile without spills and without waits that are not asked for" * need_nvrtc()) {
  for (const Operation operation : {Operation::forward, Operation::grad_input})
    for (const Types& types : {kBrain, kHalf})
      for (const std::int32_t tile_n : {112, 224, 256})
        for (const auto& [rows, merge] : {std::pair{2, 2}, {1, 4}}) {
          Problem problem = problem_of(kPlain, {32, 32}, types);
          problem.operation = operation;
          Config config = config_of(tile_n, 2, rows, merge);
          config.split = 3;
          compile_clean(problem, config);
          config.table = TableForm::global;
          compile_clean(problem, config);
        }
  compile_clean(problem_of(kPlain, {64, 64}), config_of(256, 2, 2, 1));
  compile_clean(problem_of(kPlain, {128, 64}), config_of(128, 2, 1, 1));
  compile_clean(problem_of("kernel=3x3x3 dilation=2 padding=2 input=5x9x10", {32, 64}),
                config_of(64, 2, 2, 2));
  for (const Operation operation : {Operation::forward, Operation::grad_input})
    for (const auto& [tile_n, rows, merge] : {std::tuple{112, 2, 2}, {224, 2, 2}, {112, 1, 4}}) {
      Problem problem = problem_of("kernel=3x3 stride=2 padding=1 input=40x21");
      problem.operation = operation;
      compile_clean(problem, config_of(tile_n, 2, rows, merge));
    }
  Problem problem = problem_of(kPlain);
  problem.epilogue = {.scale = true, .bias = true, .activation = Activation::gelu, .residual = true};
  compile_clean(problem, config_of(256, 2, 2, 2));
  problem.epilogue = {.scale = true, .activation = Activation::silu, .edge_bias = true};
  compile_clean(problem, config_of(224, 2, 2, 2));
}

}  // namespace
}  // namespace sparsekiln::cuda
