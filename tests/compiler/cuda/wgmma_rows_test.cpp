// The kernels of sm_90a whose warpgroups have block rows of their own: their shapes, and their code through
// NVRTC.

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/patterns.h>

#include "compiler/cuda/tables.h"
#include "compiler/cuda/wgmma_rows_shape.h"
#include "compiler/schedule.h"
#include "tests/compiler/cuda/mma_cases.h"
#include "tests/compiler/cuda/need_nvrtc.h"
#include "tests/compiler/cuda/wgmma_cases.h"
#include "tests/compiler/cuda/wgmma_rows_cases.h"

namespace sparsekiln::cuda {
namespace {

TEST_CASE("problems that wgmma_rows does not compute are refused, and mma would work") {
  const auto refused = [](auto change, std::string_view wanted, const Target& target = kHopper) {
    Problem problem = mma_problem({64, 64}, 256, kHalf);
    change(problem);
    const std::string why = refusal(problem, target, wgmma_rows_config(128, 4));
    CAPTURE(why);
    CHECK(why.find(wanted) != std::string::npos);
    CHECK(why.find("variant mma would work") != std::string::npos);
  };
  CHECK(refusal(mma_problem({64, 64}, 256, kHalf), kHopper, wgmma_rows_config(128, 4)).empty());
  refused([](Problem&) {}, "not for sm_80", {Target::Kind::cuda, "sm_80", 6});
  refused([](Problem& problem) { problem.block = {128, 64}; }, "16, 32 or 64, not 128x64");
  refused([](Problem& problem) { problem.block = {64, 8}; }, "16, 32 or 64, not 64x8");
  refused([](Problem& problem) { problem = mma_problem({64, 64}, 256, kTf32); }, "types of 16 bits, not f32");
  refused([](Problem& problem) { problem.epilogue = {.glu = true}; }, "one weight, not 2");
  refused([](Problem& problem) { problem.block_scales = true; }, "block scales");
  refused([](Problem& problem) { problem.cut_in_features = problem.in_features() - 3; }, "whole blocks");
  refused([](Problem& problem) { problem.order = ActivationOrder::feature_major; }, "batch-major");
}

TEST_CASE("numbers of wgmma_rows that do not go together are refused, with what would work") {
  const auto refused = [](Config config, std::string_view wanted, BlockShape block = {64, 64}) {
    const std::string why = refusal(mma_problem(block, 256, kHalf), kHopper, config);
    CAPTURE(why);
    CHECK(why.find(wanted) != std::string::npos);
  };
  refused(wgmma_rows_config(64, 4), "tile_n is 128 or 256");
  refused(wgmma_rows_config(128, 1), "stages is 2 to 8");
  refused(wgmma_rows_config(256, 8), "fewer stages");
  refused(wgmma_rows_config(128, 4, 4), "rows, the warpgroups that multiply, is 2 or 3");
  refused(wgmma_rows_config(128, 4, 2, 2), "merge=1 would work");
  refused(wgmma_rows_config(128, 4, 2, 1), "merge=4 would work", {16, 16});
  Config config = wgmma_rows_config(128, 4, 3);
  config.warps = 12;
  refused(config, "warps=16 would work");
  config = wgmma_rows_config(128, 4);
  config.operand_a = OperandA::x;
  refused(config, "operand_a=w would work");
  config = wgmma_rows_config(128, 4);
  config.cluster_rows = 2;
  refused(config, "cluster_rows=1 would work");
  config = wgmma_rows_config(128, 4);
  config.table = TableForm::unrolled;
  refused(config, "table=constant would work");
}

TEST_CASE("columns of 16 inputs share lines of 128 bytes, wider ones have lines of their own") {
  const auto shape = [](BlockShape block) {
    return wgmma_rows_shape(mma_problem(block, 256, kHalf), kHopper,
                            wgmma_rows_config(256, 3, 3, kRowsTile / block.out));
  };
  CHECK(shape({16, 16}).line_bytes == 128);
  CHECK(shape({16, 16}).chunk.columns == 4);
  CHECK(shape({16, 16}).piece_bytes == 32);
  CHECK(shape({32, 32}).line_bytes == 64);
  CHECK(shape({32, 32}).chunk.columns == 1);
  CHECK(shape({64, 64}).line_bytes == 128);
  CHECK(shape({64, 64}).chunk.columns == 1);
  CHECK(shape({64, 64}).columns == 128);
}

TEST_CASE("a chunk says whether another of its tile has the same line of x") {
  // Columns of the block rows: 0 1 6, and 1 2 4.
  const Layout layout = Layout::from_csr(2, 8, {0, 3, 6}, {0, 1, 6, 1, 2, 4});
  Problem problem = mma_problem({64, 16}, 256, kHalf);
  problem.layout = layout;
  const Spmm product(problem);
  const Target one{Target::Kind::cuda, "sm_90", 1};
  const Config config = wgmma_rows_config(256, 3);
  const Tables tables = make_tables(product, make_schedule(product, one, config, 256),
                                    wgmma_rows_shape(product, one, config).chunk);
  struct Said {
    std::uint32_t column, tile;
    bool same, last;
    bool operator==(const Said&) const = default;
  };
  std::vector<Said> said;
  for (std::size_t chunk = 0; chunk + 1 < tables.steps.size(); ++chunk) {
    const std::uint32_t bits = tables.steps[chunk].bits;
    said.push_back({bits & 0xffffff, bits >> 27 & 3, (bits >> 30 & 1) != 0, bits >> 31 != 0});
  }
  CHECK(said == std::vector<Said>{{0, 0, false, false},
                                  {1, 0, true, true},
                                  {1, 1, true, false},
                                  {2, 1, true, true},
                                  {4, 1, false, true},
                                  {6, 0, true, true}});
  CHECK(tables.item_ends == std::vector<std::int32_t>{3, 3, -1});
}

TEST_CASE("no row group of wgmma_rows is split, however long its rows are") {
  Problem problem = mma_problem({64, 64}, 256, kHalf);
  problem.layout = patterns::random(2, 200, 1, 1);
  const Spmm product(problem);
  const Target wide{Target::Kind::cuda, "sm_90", 132};
  CHECK(make_schedule(product, wide, wgmma_rows_config(256, 3), 256).items.size() == 1);
  CHECK(make_schedule(product, wide, wgmma_config(256, 3, 2), 256).items.size() > 1);
}

TEST_CASE("kernels of wgmma_rows compile without spills and without waits that are not asked for" *
          need_nvrtc()) {
  Epilogue longest{.scale = true, .bias = true, .activation = Activation::gelu, .residual = true};
  for (const Operation operation : {Operation::forward, Operation::grad_input})
    for (const BlockShape block : {BlockShape{64, 64}, {32, 32}, {16, 16}, {16, 64}})
      for (const std::int32_t rows : {2, 3})
        for (const Epilogue& epilogue : {Epilogue{}, longest})
          for (const auto& [table, cluster] :
               {std::pair{TableForm::constant, 1}, {TableForm::global, 2}, {TableForm::attached, 2}}) {
            if (operation == Operation::grad_input && epilogue.bias) continue;
            Problem problem = mma_problem(block, 512, kHalf);
            problem.operation = operation;
            problem.epilogue = epilogue;
            const std::int32_t outputs = operation == Operation::forward ? block.out : block.in;
            Config config = wgmma_rows_config(256, 3, rows, kRowsTile / outputs);
            config.table = table;
            config.cluster = cluster;
            CAPTURE(to_string(config));
            CAPTURE(to_string(block));
            CAPTURE(to_string(epilogue));
            const Plan plan{{512, config}};
            compiled_clean(table == TableForm::attached ? emit(Spmm(problem), kHopper, plan, {})
                                                        : emit_plan(problem, kHopper, plan),
                           rows == 2 ? 168 : 128);
          }
}

}  // namespace
}  // namespace sparsekiln::cuda
