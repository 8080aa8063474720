// The gradients of the weight that the copy engine and wgmma compute on sm_90a: their shapes, and their code
// through NVRTC.

#include <doctest/doctest.h>

#include "compiler/block_runs.h"
#include "compiler/cuda/families.h"
#include "compiler/cuda/sddmm_wgmma.h"
#include "tests/compiler/cuda/mma_cases.h"
#include "tests/compiler/cuda/need_nvrtc.h"
#include "tests/compiler/cuda/wgmma_cases.h"

namespace sparsekiln::cuda {
namespace {

constexpr Types kBrainToFloat{DType::bf16, DType::f32};

Problem gradient_problem(BlockShape block, Types types = kHalf) {
  Problem problem = mma_problem(block, 256, types);
  problem.operation = Operation::grad_weight;
  return problem;
}

Source emit_gradient(const Problem& problem, const Config& config) {
  const Sddmm gradient(problem);
  const Plan plan{{problem.batch.bound(), config}};
  return emit(gradient, kHopper, plan, make_schedules(gradient, kHopper, plan));
}

TEST_CASE("gradients of the weight that wgmma does not compute are refused, and mma would work") {
  const auto refused = [](auto change, std::string_view wanted, const Target& target = kHopper) {
    Problem problem = gradient_problem({64, 64});
    change(problem);
    const std::string why = refusal(Sddmm(problem), target, wgmma_config(64, 4, 2));
    CAPTURE(why);
    CHECK(why.find(wanted) != std::string::npos);
    CHECK(why.find("variant mma would work") != std::string::npos);
  };
  const auto nothing = [](Problem&) {};
  CHECK(refusal(Sddmm(gradient_problem({64, 64})), kHopper, wgmma_config(64, 4, 2)).empty());
  refused(nothing, "not for sm_80", {Target::Kind::cuda, "sm_80", 6});
  refused(nothing, "not for sm_100", {Target::Kind::cuda, "sm_100", 6});
  refused([](Problem& problem) { problem.block = {32, 64}; }, "multiples of 64");
  refused([](Problem& problem) { problem = gradient_problem({64, 64}, kTf32); }, "16 bits, not f32");
  refused([](Problem& problem) { problem.order = ActivationOrder::feature_major; }, "batch-major");
  refused([](Problem& problem) { problem.alignment = 8; }, "aligned to 16 bytes");
  refused([](Problem& problem) { problem.block_scales = true; }, "block scales");
  refused([](Problem& problem) { problem.block_scales = problem.block_scale_gradient = true; },
          "block scales");
  refused([](Problem& problem) { problem.derivative = Activation::relu; }, "derivative");
  refused([](Problem& problem) { problem.cut_in_features = problem.in_features() - 3; }, "whole blocks");
  refused([](Problem& problem) { problem.cut_out_features = problem.out_features() - 3; }, "whole blocks");
}

TEST_CASE("numbers of a gradient by wgmma that do not go together are refused, with what would work") {
  const auto refused = [](Config config, std::string_view wanted, BlockShape block = {64, 64}) {
    const std::string why = refusal(Sddmm(gradient_problem(block)), kHopper, config);
    CAPTURE(why);
    CHECK(why.find(wanted) != std::string::npos);
  };
  refused(wgmma_config(32, 4, 2), "is 64 or 128");
  refused(wgmma_config(64, 1, 2), "stages is 2 to 8");
  refused(wgmma_config(64, 4), "rows=2 would work");
  refused(wgmma_config(64, 4, 4), "rows=2 would work", {128, 128});
  refused(wgmma_config(64, 4, 3), "rows, the blocks of a run, is 1, 2, 4 or 8");
  refused(wgmma_config(128, 4, 4), "fewer stages", {128, 64});
  Config config = wgmma_config(64, 4, 2);
  config.warps = 8;
  refused(config, "warps=12 would work");
  config = wgmma_config(64, 4, 2);
  config.tile_out = 8;
  refused(config, "tile_out=0 would work");
  config.tile_out = 0;
  config.cluster = 2;
  refused(config, "cluster=1");
  config.cluster = 1;
  config.knobs[0] = 1;
  refused(config, "a knob");
  config.knobs[0] = 0;
  config.table = TableForm::unrolled;
  refused(config, "table=constant, global or attached would work");
}

TEST_CASE("two warpgroups share the outputs of a run, or the inputs where there are 64 outputs") {
  const auto shape_of = [](BlockShape block, std::int32_t rows, Types types = kHalf) {
    return sddmm_wgmma_shape(Sddmm(gradient_problem(block, types)), kHopper, wgmma_config(64, 2, rows));
  };
  const SddmmWgmmaShape outputs = shape_of({128, 64}, 4);
  CHECK(outputs.warpgroups_out == 2);
  CHECK(outputs.columns == 256);
  CHECK(outputs.sums == 128);
  CHECK(outputs.stage_bytes == 64 * (128 + 256) * 2);
  CHECK(outputs.interleave == 4);
  const SddmmWgmmaShape inputs = shape_of({64, 128}, 4, kBrainToFloat);
  CHECK(inputs.warpgroups_out == 1);
  CHECK(inputs.columns == 256);
  CHECK(inputs.sums == 128);
  CHECK(inputs.interleave == 2);
}

TEST_CASE("a gradient by wgmma has maps of x and dy of every pair that a launch may have") {
  const Source source = emit_gradient(gradient_problem({128, 64}), wgmma_config(128, 2));
  const std::vector<TensorMap>& maps = source.entries.front().tensor_maps;
  REQUIRE(maps.size() == 2 * kMostPairs);
  CHECK(maps[6].operand == Argument::pair_x);
  CHECK(maps[6].row_length == 23 * 64);
  CHECK(maps[7].operand == Argument::pair_dy);
  CHECK(maps[7].row_length == 4 * 128);
  for (const TensorMap& map : {maps[6], maps[7]}) {
    CHECK(map.pair == 3);
    CHECK(map.rows == 0);  // n of the launch
    CHECK(map.stride == 0);
    CHECK(map.box_rows == 128);
    CHECK(map.box_length == 64);
  }
  CHECK(code_arch(kHopper, {{256, wgmma_config(128, 2)}}) == "sm_90a");
}

TEST_CASE("gradients by wgmma compile without spills and without waits that are not asked for" *
          need_nvrtc()) {
  for (const Types& types : {kHalf, kBrainToFloat})
    for (const BlockShape block : {BlockShape{64, 64}, {64, 128}, {128, 64}, {128, 128}})
      for (const std::int32_t rows : {1, 2, 4, 8}) {
        const Problem problem = gradient_problem(block, types);
        const Config config = wgmma_config(64, 2, rows);
        if (!refusal(Sddmm(problem), kHopper, config).empty()) continue;
        CAPTURE(to_string(config));
        CAPTURE(to_string(block));
        CHECK(compiled_clean(emit_gradient(problem, config)).shared_bytes <= kWgmmaStaticShared);
      }
}

TEST_CASE("gradients by wgmma that sum dy, and add to what is there, compile without spills" * need_nvrtc()) {
  for (const BlockShape block : {BlockShape{64, 64}, {128, 64}}) {
    Problem problem = gradient_problem(block);
    problem.epilogue.scale = true;
    problem.bias_gradient = true;
    problem.overlap_launches = true;
    const Config config = wgmma_config(128, 2, 4);
    CAPTURE(to_string(block));
    const SddmmWgmmaShape shape = sddmm_wgmma_shape(Sddmm(problem), kHopper, config);
    CHECK(compiled_clean(emit_gradient(problem, config)).shared_bytes <= shape.static_bytes);
  }
}

}  // namespace
}  // namespace sparsekiln::cuda
