// The gradients of the weight whose CTAs sum many blocks at once, on sm_90: their shapes, and their code
// through NVRTC.

#include <doctest/doctest.h>
#include <sparsekiln/patterns.h>

#include "compiler/block_runs.h"
#include "compiler/cuda/families.h"
#include "compiler/cuda/sddmm_grouped.h"
#include "tests/compiler/cuda/mma_cases.h"
#include "tests/compiler/cuda/need_nvrtc.h"
#include "tests/compiler/cuda/wgmma_cases.h"

namespace sparsekiln::cuda {
namespace {

constexpr Types kBrainToFloat{DType::bf16, DType::f32};
constexpr std::int32_t kRegisters = 128;  // of a thread as it is launched

Problem gradient_problem(BlockShape block, Types types = kHalf) {
  Problem problem = mma_problem(block, 256, types);
  problem.operation = Operation::grad_weight;
  return problem;
}

Config grouped(std::int32_t rows, std::int32_t stages) {
  Config config;
  config.variant = Variant::grouped;
  config.tile_n = 32;
  config.warps = kGroupedWarps;
  config.rows = rows;
  config.stages = stages;
  config.table = TableForm::global;
  return config;
}

Source emit_gradient(const Problem& problem, const Config& config) {
  const Sddmm gradient(problem);
  const Plan plan{{problem.batch.bound(), config}};
  return emit(gradient, kHopper, plan, make_schedules(gradient, kHopper, plan));
}

TEST_CASE("gradients of the weight that variant grouped does not compute are refused, and mma would work") {
  const auto refused = [](auto change, std::string_view wanted, const Target& target = kHopper) {
    Problem problem = gradient_problem({64, 64});
    change(problem);
    const std::string why = refusal(Sddmm(problem), target, grouped(12, 4));
    CAPTURE(why);
    CHECK(why.find(wanted) != std::string::npos);
    CHECK(why.find("variant mma would work") != std::string::npos);
  };
  CHECK(refusal(Sddmm(gradient_problem({64, 64})), kHopper, grouped(12, 4)).empty());
  refused([](Problem&) {}, "not for sm_80", {Target::Kind::cuda, "sm_80", 6});
  refused([](Problem& problem) { problem.block = {32, 64}; }, "multiples of 64");
  refused([](Problem& problem) { problem = gradient_problem({64, 64}, kTf32); }, "16 bits, not f32");
  refused([](Problem& problem) { problem.block_scales = true; }, "block scales");
  refused([](Problem& problem) { problem.cut_in_features = problem.in_features() - 3; }, "whole blocks");
}

TEST_CASE("numbers of variant grouped that do not go together are refused, with what would work") {
  const auto refused = [](std::string_view wanted, auto change) {
    Config config = grouped(12, 4);
    change(config);
    const std::string why = refusal(Sddmm(gradient_problem({64, 64})), kHopper, config);
    CAPTURE(why);
    CHECK(why.find(wanted) != std::string::npos);
  };
  refused("is 32", [](Config& config) { config.tile_n = 64; });
  refused("stages is 3 to 6", [](Config& config) { config.stages = 2; });
  refused("stages is 3 to 6", [](Config& config) { config.stages = 7; });
  refused("is 6 or 12", [](Config& config) { config.rows = 8; });
  refused("is 6 or 12", [](Config& config) { config.rows = 18; });
  refused("warps=16 would work", [](Config& config) { config.warps = 12; });
  refused("tile_out=0 would work", [](Config& config) { config.tile_out = 8; });
  refused("split=1 would work", [](Config& config) { config.split = 2; });
  refused("cluster=1", [](Config& config) { config.cluster = 2; });
  refused("table=constant, global or attached would work",
          [](Config& config) { config.table = TableForm::unrolled; });
}

TEST_CASE("the ring of variant grouped has room for as many tiles as fit its stages") {
  const SddmmGroupedShape four = sddmm_grouped_shape(Sddmm(gradient_problem({64, 64})), grouped(12, 4));
  CHECK(four.threads == 512);
  CHECK(four.pairs == 2);
  CHECK(four.sums == 128);
  CHECK(four.place_tiles == 13);
  CHECK(four.shared_bytes == 4 * 13 * 32 * 128);
  CHECK(four.interleave == 4);
  const SddmmGroupedShape three =
      sddmm_grouped_shape(Sddmm(gradient_problem({64, 64}, kBrainToFloat)), grouped(6, 3));
  CHECK(three.pairs == 1);
  CHECK(three.place_tiles == 18);
  CHECK(three.interleave == 2);
}

TEST_CASE("gradients of variant grouped compile without spills and without waits that are not asked for" *
          need_nvrtc()) {
  for (const Types& types : {kHalf, kBrainToFloat})
    for (const std::int32_t rows : {6, 12}) {
      const Problem problem = gradient_problem({64, 64}, types);
      const Config config = grouped(rows, 4);
      CAPTURE(to_string(config));
      CHECK(compiled_clean(emit_gradient(problem, config), kRegisters).shared_bytes <=
            sddmm_grouped_shape(Sddmm(problem), config).static_bytes);
    }
}

TEST_CASE("gradients of variant grouped that slice the batch, sum dy and add to what is there do so, too" *
          need_nvrtc()) {
  Problem problem = gradient_problem({128, 64}, kBrainToFloat);
  problem.layout = patterns::random(2, 3, 1, 1);
  problem.batch = 4096;
  problem.epilogue.scale = true;
  problem.bias_gradient = true;
  problem.overlap_launches = true;
  const Config config = grouped(12, 5);
  const Source source = emit_gradient(problem, config);
  CHECK(source.entries.front().workspace.bytes_per_tile > 0);  // slices
  CHECK(compiled_clean(source, kRegisters).shared_bytes <=
        sddmm_grouped_shape(Sddmm(problem), config).static_bytes);
}

}  // namespace
}  // namespace sparsekiln::cuda
