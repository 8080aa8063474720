// The kernels that the copy engine and wgmma make on sm_90a: their shapes, and their code through NVRTC.

#include <array>

#include <doctest/doctest.h>

#include "compiler/cuda/families.h"
#include "tests/compiler/cuda/mma_cases.h"
#include "tests/compiler/cuda/need_nvrtc.h"
#include "tests/compiler/cuda/wgmma_cases.h"

namespace sparsekiln::cuda {
namespace {

constexpr Types kBrainToFloat{DType::bf16, DType::f32};
constexpr Types kFloat8{DType::e4m3, DType::bf16};
constexpr Types kI8{DType::i8, DType::i32};

TEST_CASE("problems that wgmma does not compute are refused, and mma would work") {
  const auto refused = [](auto change, std::string_view wanted, const Target& target = kHopper) {
    Problem problem = mma_problem({64, 64}, 256, kHalf);
    change(problem);
    const std::string why = refusal(problem, target, wgmma_config(128, 4));
    CAPTURE(why);
    CHECK(why.find(wanted) != std::string::npos);
    CHECK(why.find("variant mma would work") != std::string::npos);
  };
  const auto nothing = [](Problem&) {};
  CHECK(refusal(mma_problem({64, 64}, 256, kHalf), kHopper, wgmma_config(128, 4)).empty());
  refused(nothing, "not for sm_80", {Target::Kind::cuda, "sm_80", 6});
  refused(nothing, "not for sm_100", {Target::Kind::cuda, "sm_100", 6});
  refused([](Problem& problem) { problem.block = {32, 64}; }, "multiples of 64");
  Problem ieee = mma_problem({64, 64}, 256, kHalf);
  ieee.dtype = ieee.out_dtype = DType::f32;
  CHECK(refusal(ieee, kHopper, wgmma_config(128, 4)).find("math tf32, not ieee; variant simt") !=
        std::string::npos);
  refused(
      [](Problem& problem) {
        problem = mma_problem({64, 64}, 256, kTf32);
        problem.operation = Operation::grad_input;
      },
      "16 bits");
  refused([](Problem& problem) { problem.order = ActivationOrder::feature_major; }, "batch-major");
  refused([](Problem& problem) { problem.alignment = 8; }, "aligned to 16 bytes");
  refused([](Problem& problem) { problem.block_scales = true; }, "block scales");
  refused([](Problem& problem) { problem.cut_in_features = problem.in_features() - 3; }, "whole blocks");
}

TEST_CASE("numbers that do not go together are refused, with what would work") {
  const auto refused = [](Config config, std::string_view wanted, BlockShape block = {64, 64}) {
    const std::string why = refusal(mma_problem(block, 256, kHalf), kHopper, config);
    CAPTURE(why);
    CHECK(why.find(wanted) != std::string::npos);
  };
  refused(wgmma_config(64, 4), "tile_n is 128 or 256");
  refused(wgmma_config(128, 1), "stages is 2 to 8");
  refused(wgmma_config(256, 8), "fewer stages");
  refused(wgmma_config(128, 4, 1, 4), "merge=1 would work", {128, 64});
  refused(wgmma_config(256, 3, 4), "rows=1");
  CHECK(refusal(mma_problem({128, 64}, 256, kFloat8), kHopper, wgmma_config(256, 3))
            .find("would hold 256 sums, more than the 192") != std::string::npos);
  CHECK(refusal(mma_problem({128, 64}, 256, kI8), kHopper, wgmma_config(256, 3)).empty());
  Config config = wgmma_config(128, 4);
  config.warps = 8;
  refused(config, "warps=12 would work");
  config = wgmma_config(128, 4);
  config.table = TableForm::unrolled;
  refused(config, "table=constant would work");
  config = wgmma_config(128, 4);
  config.cluster = 4;
  refused(config, "cluster=2 would work");
  config.cluster = 1;
  config.cluster_rows = 3;
  refused(config, "cluster_rows=2 would work");
  config = mma_config(64, OperandA::x, 2, 4);
  config.cluster = 2;
  refused(config, "variant mma has no clusters");
  config.cluster = 1;
  config.cluster_rows = 2;
  refused(config, "variant mma has no clusters");
}

TEST_CASE(
    "a stage has 128 bytes of a block's k, or 64, and W has as many stages as x for each tile of an item") {
  const WgmmaShape one = wgmma_shape(mma_problem({128, 128}, 256, kHalf), kHopper, wgmma_config(128, 4));
  CHECK(one.chunk == ChunkShape{1, 2});
  CHECK(one.stages_w == 4);
  CHECK(one.shared_bytes == 4 * (128 + 128) * 128);
  CHECK(one.sums == 64);
  const WgmmaShape two = wgmma_shape(mma_problem({64, 64}, 256, kHalf), kHopper, wgmma_config(128, 4, 2));
  CHECK(two.chunk == ChunkShape{1, 1});
  CHECK(two.stages_w == 8);
  CHECK(two.sums == 64);
  const WgmmaShape bytes = wgmma_shape(mma_problem({128, 128}, 256, kFloat8), kHopper, wgmma_config(128, 4));
  CHECK(bytes.line_bytes == 128);
  CHECK(bytes.chunk == ChunkShape{1, 1});
  CHECK(bytes.products == 64);
  const WgmmaShape narrow = wgmma_shape(mma_problem({64, 192}, 256, kI8), kHopper, wgmma_config(128, 4, 2));
  CHECK(narrow.line_bytes == 64);
  CHECK(narrow.chunk == ChunkShape{1, 3});
  CHECK(narrow.products == 0);
  const WgmmaShape full = wgmma_shape(mma_problem({64, 64}, 256, kHalf), kHopper, wgmma_config(256, 5, 2));
  CHECK(full.stages_w == 8);
}

TEST_CASE("the copy engine orders W's rows so that a thread has 16 bytes of neighbouring outputs") {
  const auto maps = [](const Problem& problem) {
    const Source source = emit_plan(problem, kHopper, {{256, wgmma_config(128, 4)}});
    return source.entries.front().tensor_maps;
  };
  CHECK(maps(mma_problem({128, 64}, 256, kHalf)).at(1).interleave == 8);
  CHECK(maps(mma_problem({128, 64}, 256, kHalfToFloat)).at(1).interleave == 4);
  CHECK(maps(mma_problem({128, 64}, 256, kFloat8)).at(1).interleave == 8);
  CHECK(maps(mma_problem({128, 64}, 256, kI8)).at(1).interleave == 4);
  CHECK(maps(mma_problem({128, 64}, 256, kI8)).at(1).swizzle_bytes == 64);
  CHECK_FALSE(maps(mma_problem({128, 64}, 256, kHalf)).at(0).to_tf32);
  for (const TensorMap& map : maps(mma_problem({128, 64}, 256, kTf32))) CHECK(map.to_tf32);
  Problem gradient = mma_problem({128, 64}, 256, kHalf);
  gradient.operation = Operation::grad_input;
  CHECK(maps(gradient).at(1).interleave == 0);
  CHECK(maps(gradient).at(1).box_rows == 64);
}

TEST_CASE("the CTAs of a cluster share out the rows of boxes") {
  Config config = wgmma_config(128, 4);
  config.cluster = 2;
  const Source source = emit_plan(mma_problem({128, 64}, 256, kHalf), kHopper, {{256, config}});
  const Entry& entry = source.entries.front();
  CHECK(entry.attributes.cluster == std::array<std::int32_t, 2>{1, 2});
  CHECK(entry.tensor_maps.at(0).box_rows == 128);
  CHECK(entry.tensor_maps.at(1).box_rows == 64);
  config.cluster_rows = 2;
  const Source both = emit_plan(mma_problem({128, 64}, 256, kHalf), kHopper, {{256, config}});
  CHECK(both.entries.front().attributes.cluster == std::array<std::int32_t, 2>{2, 2});
  CHECK(both.entries.front().workers % 2 == 0);
  CHECK(both.entries.front().tensor_maps.at(0).box_rows == 64);
  CHECK(both.entries.front().tensor_maps.at(1).box_rows == 64);
}

TEST_CASE("a plan with wgmma is compiled for sm_90a, and any other for its target") {
  const RangedConfig wgmma{256, wgmma_config(128, 4)};
  const RangedConfig mma{64, mma_config(64, OperandA::x, 2, 4)};
  CHECK(code_arch(kHopper, {mma, wgmma}) == "sm_90a");
  CHECK(code_arch(kHopper, {mma}) == "sm_90");
  CHECK(code_arch({Target::Kind::cuda, "sm_100a", 6}, {mma}) == "sm_100a");
}

void compile_clean(const Problem& problem, const Config& config) {
  CAPTURE(to_string(config));
  CAPTURE(to_string(problem.block));
  CHECK(compiled_clean(emit_plan(problem, kHopper, {{problem.batch.bound(), config}})).shared_bytes <=
        kWgmmaStaticShared);
}

TEST_CASE("kernels of wgmma compile without spills and without waits that are not asked for" * need_nvrtc()) {
  for (const Operation operation : {Operation::forward, Operation::grad_input})
    for (const Types& types : {kHalf, kBrainToFloat, kTf32, kFloat8, kI8})
      for (const BlockShape block : {BlockShape{64, 64}, BlockShape{128, 64}, BlockShape{128, 256}})
        for (const std::int32_t tile_n : {128, 256}) {
          if (operation == Operation::grad_input && size_of(types.dtype) != 2) continue;
          Problem problem = mma_problem(block, 512, types);
          problem.operation = operation;
          const std::int32_t outputs = operation == Operation::forward ? block.out : block.in;
          if (outputs * tile_n > (types.dtype == DType::e4m3 ? 96 : 128) * 256) continue;
          compile_clean(problem, wgmma_config(tile_n, 3));
        }
}

TEST_CASE("products of 8-bit floats are added to sums in float32 after each chunk, others never" *
          need_nvrtc()) {
  const auto additions = [](const Problem& problem) {
    const Source source = emit_plan(problem, kHopper, {{problem.batch.bound(), wgmma_config(128, 3)}});
    const std::string ptx = find_nvrtc()->compile(source.text, "sm_90a").ptx;
    std::int64_t found = 0;
    for (std::size_t at = ptx.find("add.f32"); at != ptx.npos; at = ptx.find("add.f32", at + 1)) ++found;
    return found;
  };
  for (const BlockShape block : {BlockShape{64, 64}, BlockShape{128, 128}}) {
    CAPTURE(to_string(block));
    // A thread has half as many sums as the block has outputs. One loop goes through chunks. Another one adds
    // the parts of rows, of all types.
    const std::int64_t of_parts = additions(mma_problem(block, 128, kHalf));
    for (const DType type : {DType::e4m3, DType::e5m2})
      CHECK(additions(mma_problem(block, 128, {type, DType::bf16})) == of_parts + block.out / 2);
    CHECK(additions(mma_problem(block, 128, kI8)) == 0);
  }
}

TEST_CASE("kernels of wgmma with several tiles, and with long epilogues, compile without spills" *
          need_nvrtc()) {
  // As many sums as there may be, and parts of rows that are combined.
  for (const Types& types : {kHalf, kFloat8, kI8})
    for (const auto& [cluster, cluster_rows] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
      Config config = wgmma_config(128, 3, 2);
      config.split = 3;
      config.cluster = cluster;
      config.cluster_rows = cluster_rows;
      compile_clean(mma_problem({128, 128}, 512, types), config);
    }
  for (const Operation operation : {Operation::forward, Operation::grad_input}) {
    Problem merged = mma_problem({128, 128}, 512, kHalf);
    merged.operation = operation;
    compile_clean(merged, wgmma_config(128, 3, 1, 2));
  }
  Problem problem = mma_problem({64, 64}, 512, kHalf);
  for (const std::int32_t rows : {2, 4}) compile_clean(problem, wgmma_config(128, 3, rows));
  for (const std::int32_t merge : {2, 4}) compile_clean(problem, wgmma_config(128, 3, 1, merge));
  Config clustered = wgmma_config(128, 3, 2);
  clustered.cluster = 2;
  compile_clean(problem, clustered);
  problem.epilogue = {.scale = true, .bias = true, .activation = Activation::gelu, .residual = true};
  compile_clean(problem, wgmma_config(256, 3, 1, 2));
  problem.epilogue.glu = true;
  compile_clean(problem, wgmma_config(128, 3));
  problem.epilogue = {.residual = true, .lstm = true};
  problem.operation = Operation::grad_input;
  compile_clean(problem, wgmma_config(128, 3));
}

}  // namespace
}  // namespace sparsekiln::cuda
