// The gradients of the weight of convolutions that the copy engine and wgmma make on sm_90a: what they
// refuse, their shapes, and their code through NVRTC.

#include <string_view>

#include <doctest/doctest.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/patterns.h>

#include "compiler/block_runs.h"
#include "compiler/cuda/sddmm_grouped.h"
#include "compiler/cuda/sddmm_halo.h"
#include "tests/compiler/cuda/mma_cases.h"
#include "tests/compiler/cuda/need_nvrtc.h"
#include "tests/compiler/cuda/wgmma_cases.h"

namespace sparsekiln::cuda {
namespace {

constexpr Types kBrain{DType::bf16, DType::bf16};
constexpr std::int32_t kRegisters = 128;  // of a thread as it is launched

Problem gradient_problem(BlockShape block = {32, 32}, Types types = kBrain) {
  Problem problem = mma_problem(block, 2, types);
  problem.convolution = parse_convolution("kernel=3x3 padding=1 input=20x13");
  problem.operation = Operation::grad_weight;
  return problem;
}

Config config_of(std::int32_t tile_n, std::int32_t stages, std::int32_t rows) {
  Config config;
  config.variant = Variant::halo;
  config.tile_n = tile_n;
  config.stages = stages;
  config.warps = kGroupedWarps;
  config.rows = rows;
  config.table = TableForm::global;
  return config;
}

Source emit_gradient(const Problem& problem, const Config& config) {
  const Sddmm gradient(problem);
  const Plan plan{{problem.batch.bound(), config}};
  return emit(gradient, kHopper, plan, make_schedules(gradient, kHopper, plan));
}

TEST_CASE("gradients of the weight that halo does not compute are refused, and mma would work") {
  const auto refused = [](auto change, std::string_view wanted, const Target& target = kHopper) {
    Problem problem = gradient_problem();
    change(problem);
    const std::string why = refusal(Sddmm(problem), target, config_of(64, 2, 12));
    CAPTURE(why);
    CHECK(why.find(wanted) != std::string::npos);
    CHECK(why.find("variant mma would work") != std::string::npos);
  };
  CHECK(refusal(Sddmm(gradient_problem()), kHopper, config_of(64, 2, 12)).empty());
  refused([](Problem&) {}, "not for sm_80", {Target::Kind::cuda, "sm_80", 6});
  refused([](Problem& problem) { problem.convolution = {}; }, "taps read neighbouring positions");
  refused([](Problem& problem) { problem.convolution = parse_convolution("kernel=1x1 input=9x9"); },
          "taps read neighbouring positions");
  refused([](Problem& problem) { problem.convolution.stride[2] = 9; }, "up to 8 apart, not 1 x 9");
  refused([](Problem& problem) { problem.convolution.dynamic = true; }, "images of one size");
  refused([](Problem& problem) { problem.block = {32, 16}; }, "multiples of 32, not 32x16");
  refused([](Problem& problem) { problem.block = {16, 32}; }, "multiples of 32, not 16x32");
  refused([](Problem& problem) { problem.alignment = 8; }, "aligned to 16 bytes");
  refused([](Problem& problem) { problem.block_scales = true; }, "neither block scales nor a derivative");
  refused([](Problem& problem) { problem.cut_out_features = problem.out_features() - 3; }, "whole blocks");
  refused(
      [](Problem& problem) {
        problem.dtype = problem.out_dtype = DType::f32;
        problem.math = Math::tf32;
      },
      "f16 and bf16");
}

TEST_CASE("numbers of halo's gradient of the weight that do not go together are refused, with what works") {
  const auto refused = [](std::string_view wanted, auto change, BlockShape block = {32, 32}) {
    Config config = config_of(64, 2, 12);
    change(config);
    const std::string why = refusal(Sddmm(gradient_problem(block)), kHopper, config);
    CAPTURE(why);
    CHECK(why.find(wanted) != std::string::npos);
  };
  refused("multiple of 16 up to 256", [](Config& config) { config.tile_n = 40; });
  refused("multiple of 16 up to 256", [](Config& config) { config.tile_n = 272; });
  refused("warps=16 would work", [](Config& config) { config.warps = 12; });
  refused("stages is 2 to 6", [](Config& config) { config.stages = 1; });
  refused("multiple of 6 up to 42 for blocks of 32 outputs", [](Config& config) { config.rows = 48; });
  refused("multiple of 6 up to 42", [](Config& config) { config.rows = 8; });
  refused("multiple of 6 up to 18 for blocks of 64 outputs", [](Config& config) { config.rows = 24; },
          {64, 32});
  refused("tile_out=0 would work", [](Config& config) { config.tile_out = 8; });
  refused("split=1 would work", [](Config& config) { config.split = 2; });
  refused("table=constant, global or attached would work",
          [](Config& config) { config.table = TableForm::unrolled; });
  refused("a smaller tile_n would work", [](Config& config) {
    config.tile_n = 256;
    config.stages = 6;
  });
}

TEST_CASE("a place of halo's gradient of the weight has room for tiles of dy, and of x with their border") {
  const SddmmHaloShape narrow = sddmm_halo_shape(Sddmm(gradient_problem()), config_of(64, 3, 42));
  CHECK(narrow.threads == 512);
  CHECK(narrow.pairs == 7);
  CHECK(narrow.sums == 112);
  CHECK(narrow.group.out_bytes == 64 * 64);
  CHECK(narrow.group.in_bytes == 7 * 1024);  // 10 x 10 lines of 64 bytes
  CHECK(narrow.group.place_bytes == 73 * 1024);
  CHECK(narrow.shared_bytes == 3 * 73 * 1024);
  const SddmmHaloShape wide = sddmm_halo_shape(Sddmm(gradient_problem({128, 64})), config_of(112, 2, 18));
  CHECK(wide.group.piece == BlockShape{64, 32});
  CHECK(wide.sums == 96);
  CHECK(wide.group.out_bytes == 2 * 112 * 64);
  CHECK(wide.group.in_bytes == 10 * 1024);  // 16 x 10
}

TEST_CASE("gradients of the weight by halo compile without spills and without waits that are not asked for" *
          need_nvrtc()) {
  const auto check = [](BlockShape block, Types types, const Config& config, std::int64_t images) {
    CAPTURE(to_string(config));
    Problem problem = gradient_problem(block, types);
    if (images > 2) problem.layout = patterns::random(2, 1, 1, 1);
    problem.batch = images;
    problem.epilogue.scale = images > 2;
    const Source source = emit_gradient(problem, config);
    CHECK((source.entries.front().passes.size() == 2) == (images > 2));  // slices, which are added after
    CHECK(compiled_clean(source, kRegisters).shared_bytes <= kSddmmHaloStaticShared);
  };
  check({32, 32}, kBrain, config_of(64, 2, 42), 2);
  check({32, 32}, {DType::f16, DType::f32}, config_of(112, 2, 42), 64);
  check({64, 32}, kBrain, config_of(64, 3, 18), 64);
  check({128, 64}, {DType::f16, DType::f16}, config_of(32, 4, 12), 2);
}

}  // namespace
}  // namespace sparsekiln::cuda
