#include "compiler/cuda/emit.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "compiler/block_runs.h"
#include "compiler/cuda/sddmm.h"
#include "compiler/cuda/tables.h"
#include "tests/compiler/cuda/simt_cases.h"

namespace sparsekiln::cuda {
namespace {

const Target kA100{Target::Kind::cuda, "sm_80", 4};

Config plain_config() {
  Config config;
  config.tile_n = 16;
  config.tile_out = 4;
  config.warps = 1;
  config.stages = 2;
  return config;
}

/// 2 × 3 blocks of 16 × 8: columns 0 and 2, then 0 and 1.
Problem tiny_problem() {
  Problem problem;
  problem.layout = Layout::from_mask(2, 3, std::vector<std::uint8_t>{1, 0, 1, 1, 1, 0});
  problem.block = {16, 8};
  problem.batch = 16;
  return problem;
}

std::size_t count(const std::string& text, const std::string& wanted) {
  std::size_t found = 0;
  for (std::size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) ++found;
  return found;
}

std::string refusal(const Problem& problem, const Target& target, const Config& config) {
  try {
    validate(problem, target, config);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::invalid_argument ? error.what() : "of another kind";
  }
  return {};
}

TEST_CASE("the gradient of the input is emitted as such, of the weight that was given") {
  Problem problem = skewed_problem({8, 32}, 16);
  problem.operation = Operation::grad_input;
  const Target target{Target::Kind::cuda, "sm_90", 6};
  const Source source =
      emit_plan(problem, target, {{16, fitting_config({32, 8}, target, 16, 2, TableForm::constant)}});
  CHECK(source.entries.front().passes.front() == "sparsekiln_grad_input_0");
  for (const std::string_view wanted :
       {"dx[n, in] = dy[n, out] * W[out, in]", "W[32, 736], 4 x 23 blocks of 8x32", "by_columns = true",
        "block_out = 32", "block_in = 8"}) {
    CAPTURE(wanted);
    CHECK(source.text.find(wanted) != std::string::npos);
  }
  CHECK(source.text.find(problem.layout.digest().hex()) != std::string::npos);
}

TEST_CASE("the source of a small layout has a header, constants, one table and one instantiation") {
  const Problem problem = tiny_problem();
  const Source source = emit_plan(problem, kA100, {{16, plain_config()}});
  CHECK(source.text.starts_with(
      "// Sparsekiln: forward of a block-sparse linear layer, y[n, out] = x[n, in] * W[out, in]^T\n"
      "//   layout  W[32, 24], 2 x 3 blocks of 16x8 (out x in), 4 present, density 0.6667\n"
      "//   digest  " +
      problem.layout.digest().hex() +
      "\n"
      "//   batch   16\n"
      "//   types   f32 to f32, math ieee, batch-major\n"
      "//   target  sm_80:4\n"
      "//   entry 0 n <= 16: simt tile_n=16 tile_out=4 stages=2 warps=1 split=1 rows=1 merge=1 "
      "split_saves=0 table=constant operand_a=x packed=0\n"));
  CHECK(count(source.text,
              "static __constant__ const uint2 steps_0[] = {\n"
              "  {0x0, 0u}, {0x2, 1u}, {0x0, 2u}, {0x1, 3u}, {0x20000000, 0u},\n};") == 1);
  CHECK(count(source.text, "static __constant__ const int item_ends_0[] = {\n  2, 4, -1,\n};") == 1);
  CHECK(count(source.text, "static __constant__ const int rows_0[] = {\n  0, 1,\n};") == 1);
  CHECK(count(source.text, "    block_out = 16,\n    block_in = 8,\n    tile_n = 16, ") == 1);
  CHECK(count(source.text, "extern \"C\" __global__ void __launch_bounds__(32, 1) sparsekiln_forward_0(") ==
        1);
  CHECK(count(source.text,
              "spmm_simt<Config0>(x, w, y, workspace, n, x_stride, y_stride, ends, Table0{});") == 1);
  CHECK(count(source.text, "#include") == 0);
  CHECK(count(source.text, "#pragma once") == 0);
}

TEST_CASE("an entry says how it is launched") {
  const Source source = emit_plan(tiny_problem(), kA100, {{16, plain_config()}});
  REQUIRE(source.entries.size() == 1);
  const Entry& entry = source.entries.front();
  CHECK(entry.up_to == 16);
  CHECK(entry.passes == std::vector<std::string>{"sparsekiln_forward_0"});
  CHECK(entry.workers == 2);
  CHECK(entry.tile_n == 16);
  CHECK(entry.threads == 32);
  CHECK(entry.dynamic_shared_bytes == 0);
  CHECK(entry.arguments == std::vector<Argument>{Argument::x, Argument::w, Argument::y, Argument::workspace,
                                                 Argument::n, Argument::x_stride, Argument::y_stride});
  CHECK(entry.workspace == Workspace{});
}

TEST_CASE("emitting twice gives the same text") {
  const Problem problem = skewed_problem({32, 16}, 64);
  const Plan plan{{64, fitting_config(problem.block, kA100, 32, 2, TableForm::global)}};
  CHECK(emit_plan(problem, kA100, plan).text == emit_plan(problem, kA100, plan).text);
}

TEST_CASE("entries share tables that are equal") {
  const Problem problem = tiny_problem();
  const Source source = emit_plan(problem, kA100, {{8, plain_config()}, {16, plain_config()}});
  CHECK(count(source.text, " steps_0[] = ") == 1);
  CHECK(count(source.text, " steps_1[] = ") == 0);
  CHECK(count(source.text, "steps_0[index]") == 2);
  CHECK(count(source.text, "extern \"C\" __global__") == 2);
  CHECK(count(source.text, "template <class Config>\n__device__ __forceinline__ void spmm_simt") == 1);
}

/// A table of 9 KB: 8 × 128 blocks of 16 × 16, all present.
Problem large_problem() {
  Problem problem;
  problem.layout = Layout::from_mask(8, 128, std::vector<std::uint8_t>(8 * 128, 1));
  problem.block = {16, 16};
  problem.batch = Batch::up_to(64);
  return problem;
}

std::vector<std::string> symbols(const Source& source) {
  std::vector<std::string> names;
  for (const ModuleData& data : source.data) names.push_back(data.symbol);
  return names;
}

TEST_CASE("tables beyond the limit of a module's text are data, each with its bytes") {
  const Problem problem = large_problem();
  const Target target{Target::Kind::cuda, "sm_80", 6};  // rows are split
  const Config config = fitting_config(problem.block, target, 16, 2, TableForm::global);
  Config other = config;
  other.split = 2;
  std::vector<Schedule> schedules;
  const Source source = emit_plan(problem, target, {{16, config}, {64, other}}, &schedules);
  CHECK(count(source.text, "static __device__ const uint2 steps_0[] = ") == 1);
  CHECK(count(source.text, " steps_1[] = ") == 0);
  CHECK(symbols(source) == std::vector<std::string>{"worker_begin_1", "steps_1", "item_ends_1", "rows_1",
                                                    "splits_1", "parts_1"});
  const Tables tables = make_tables(schedules[1], chunk_shape(Spmm(problem), target, other));
  const auto same = [](const ModuleData& data, const auto& elements) {
    return std::ranges::equal(data.bytes, std::as_bytes(std::span(elements)));
  };
  CHECK(same(source.data[0], tables.worker_begin));
  CHECK(same(source.data[1], tables.steps));
  CHECK(same(source.data[2], tables.item_ends));
  CHECK(same(source.data[3], tables.rows));
  CHECK(same(source.data[4], tables.splits));
  CHECK(same(source.data[5], tables.parts));
  CHECK(count(source.text, fmt::format("extern \"C\" {{ __device__ __align__(16) uint2 steps_1[{}]; }}",
                                       tables.steps.size())) == 1);
  CHECK(count(source.text, "sparsekiln::ptx::read_only(steps_1[index])") == 1);
  CHECK(count(source.text, "return {steps_0[index]}") == 1);
}

TEST_CASE("entries with equal tables share their data") {
  Problem problem = large_problem();
  problem.layout = Layout::from_mask(16, 256, std::vector<std::uint8_t>(16 * 256, 1));
  const Target target{Target::Kind::cuda, "sm_80", 16};
  const Config config = fitting_config(problem.block, target, 16, 2, TableForm::global);
  const Source source = emit_plan(problem, target, {{8, config}, {16, config}});
  CHECK(symbols(source) == std::vector<std::string>{"worker_begin_0", "steps_0", "item_ends_0", "rows_0"});
  CHECK(count(source.text, "sparsekiln::ptx::read_only(steps_0[index])") == 2);
}

TEST_CASE("large tables in constant memory stay in the text") {
  const Problem problem = large_problem();
  const Target target{Target::Kind::cuda, "sm_80", 6};
  const Config config = fitting_config(problem.block, target, 16, 2, TableForm::constant);
  Config other = config;
  other.split = 2;
  const Source source = emit_plan(problem, target, {{16, config}, {64, other}});
  CHECK(source.data.empty());
  CHECK(count(source.text, "static __constant__ const uint2 steps_") == 2);
}

TEST_CASE("the tables of the weight's gradient are data beyond the limit, too") {
  Problem problem = large_problem();
  problem.operation = Operation::grad_weight;
  problem.layout = Layout::from_mask(32, 256, std::vector<std::uint8_t>(32 * 256, 1));
  const Target target{Target::Kind::cuda, "sm_80", 8};
  const Sddmm gradient(problem);
  Config config;
  config.tile_n = 16;
  config.tile_out = 4;
  config.stages = 2;
  config.warps = 2;
  config.table = TableForm::global;
  validate(gradient, target, config);
  const Plan plan{{64, config}};
  const std::vector<BlockRuns> schedules = make_schedules(gradient, target, plan);
  const Source source = emit(gradient, target, plan, schedules);
  CHECK(symbols(source) == std::vector<std::string>{"worker_begin_0", "runs_0", "columns_0"});
  CHECK(source.data[1].bytes.size() == 16 * schedules[0].runs.size());
  CHECK(source.data[2].bytes.size() == 4 * 32 * 256);
  CHECK(count(source.text, " columns_0[] = ") == 0);
  CHECK(count(source.text, "sparsekiln::ptx::read_only(runs_0[4 * index + 3])") == 1);
}

TEST_CASE("entries with split rows keep their counters in the same bytes of the workspace") {
  const Target target{Target::Kind::cuda, "sm_80", 8};
  const Problem problem = skewed_problem({16, 16}, Batch::up_to(64));
  Config wide = fitting_config(problem.block, target, 32, 2, TableForm::constant);
  Config narrow = fitting_config(problem.block, target, 8, 2, TableForm::constant);
  wide.split = 2;
  const Source source = emit_plan(problem, target, {{8, narrow}, {64, wide}});
  CHECK(source.entries[0].workspace.bytes_per_tile > 0);
  CHECK(source.entries[0].workspace.counter_bytes > 0);
  CHECK(source.entries[0].workspace.counter_bytes == source.entries[1].workspace.counter_bytes);
}

TEST_CASE("attached tables: the text knows no layout, and the entries wait for one") {
  Problem problem = tiny_problem();
  Config config = plain_config();
  config.table = TableForm::attached;
  const Source source = emit(problem, kA100, {{16, config}}, {});
  problem.layout = Layout::from_mask(7, 3, std::vector<std::uint8_t>(21, 1));
  CHECK(emit(problem, kA100, {{16, config}}, {}).text == source.text);
  CHECK(count(source.text, "using Table0 = sparsekiln::AttachedTables;") == 1);
  CHECK(source.entries.front().arguments.back() == Argument::tables);
  CHECK(source.entries.front().workers == 0);
  CHECK_THROWS_AS((void)emit(problem, kA100, {{8, plain_config()}, {16, config}}, {}), Error);
}

TEST_CASE("attached tables: ranges with one config share a kernel, and others have their own") {
  Problem problem = tiny_problem();
  problem.batch = Batch::up_to(64);
  problem.epilogue = parse_epilogue("layer_norm");
  Config config = plain_config();
  config.table = TableForm::attached;
  Config narrow = config;
  narrow.tile_n = 8;
  const Plan plan{{8, config}, {16, narrow}, {32, config}, {64, narrow}};
  const Source source = emit(problem, kA100, plan, {});
  REQUIRE(source.entries.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CAPTURE(i);
    CHECK(source.entries[i].up_to == plan[i].up_to);
    CHECK(source.entries[i].tile_n == plan[i].config.tile_n);
    CHECK(source.entries[i].passes ==
          std::vector<std::string>{fmt::format("sparsekiln_forward_{}", i % 2),
                                   fmt::format("sparsekiln_normalise_{}", i % 2)});
    CHECK(source.entries[i].arguments.back() == Argument::tables);
  }
  CHECK(count(source.text, "__global__") == 4);
  CHECK(recipe_of(problem, kA100, plan, {}).entries == source.entries);

  problem.operation = Operation::grad_weight;
  problem.epilogue = {};
  const Sddmm gradient(problem);
  const Config sums = parse_config("simt tile_n=16 tile_out=4 stages=2 warps=2 table=attached");
  const Source of_gradient = emit(gradient, kA100, {{32, sums}, {64, sums}}, {});
  REQUIRE(of_gradient.entries.size() == 2);
  CHECK(of_gradient.entries[1].up_to == 64);
  CHECK(of_gradient.entries[1].passes == of_gradient.entries[0].passes);
  CHECK(count(of_gradient.text, "__global__") == 1);
}

TEST_CASE("baked tables: ranges with one config have kernels of their own") {
  Problem problem = tiny_problem();
  problem.batch = Batch::up_to(32);
  const Source source = emit_plan(problem, kA100, {{16, plain_config()}, {32, plain_config()}});
  CHECK(source.entries[0].passes != source.entries[1].passes);
  CHECK(count(source.text, "__global__") == 2);
}

TEST_CASE("each entry of a product whose sums are normalised has a second kernel, and none begins early") {
  Problem problem = tiny_problem();
  problem.layout = Layout::from_mask(4, 3, std::vector<std::uint8_t>(12, 1));
  problem.batch = Batch::up_to(16);
  problem.epilogue = parse_epilogue("layer_norm+multiply+lstm");
  problem.overlap_launches = true;
  const Target target{Target::Kind::cuda, "sm_90", 4};
  const Source source = emit_plan(problem, target, {{8, plain_config()}, {16, plain_config()}});
  REQUIRE(source.entries.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const Entry& entry = source.entries[i];
    CHECK(entry.passes == std::vector<std::string>{fmt::format("sparsekiln_forward_{}", i),
                                                   fmt::format("sparsekiln_normalise_{}", i)});
    CHECK(std::vector<Argument>(entry.arguments.end() - 2, entry.arguments.end()) ==
          std::vector<Argument>{Argument::normalisation, Argument::cell});
    CHECK(!entry.attributes.overlaps_previous);
    CHECK(count(source.text, fmt::format("normalise<Config{}>(normalisation, cell, n);", i)) == 1);
  }
  // The product takes the operands of what follows it, and does nothing with them.
  CHECK(count(source.text, "ends.cell") == 0);
  CHECK(count(source.text, "norm_features = 16, ") == 2);
  CHECK(count(source.text, "norm_piece = 4, ") == 2);
}

TEST_CASE("attached tables: a kernel that normalises knows no layout") {
  Problem problem = tiny_problem();
  problem.operation = Operation::grad_input;
  problem.epilogue = parse_epilogue("layer_norm+add");
  Config config = plain_config();
  config.table = TableForm::attached;
  config.tile_out = 1;
  const Source source = emit(problem, kA100, {{16, config}}, {});
  problem.layout = Layout::from_mask(7, 3, std::vector<std::uint8_t>(21, 1));
  CHECK(emit(problem, kA100, {{16, config}}, {}).text == source.text);
  CHECK(count(source.text, "norm_features = 0, ") == 1);
  CHECK(count(source.text,
              "differentiate_normalisation<Config0>(normalisation, sparsekiln::CellMatrices{}, n);") == 1);
}

TEST_CASE("unrolled tables are only for short work") {
  Problem problem = tiny_problem();
  Config config = plain_config();
  config.table = TableForm::unrolled;
  CHECK(refusal(problem, kA100, config) == "");
  CHECK(count(emit_plan(problem, kA100, {{16, config}}).text, "unrolled_workers = 2") == 1);
  problem.layout = Layout::from_mask(8, 8, std::vector<std::uint8_t>(64, 1));
  CHECK(refusal(problem, kA100, config).find("table=constant") != std::string::npos);
}

TEST_CASE("a table too large for constant memory is refused, and global is named as what works") {
  Problem problem = tiny_problem();
  problem.layout = Layout::from_mask(200, 200, std::vector<std::uint8_t>(40000, 1));
  Config config = plain_config();
  CHECK(refusal(problem, kA100, config).find("table=global") != std::string::npos);
  config.table = TableForm::global;
  CHECK(refusal(problem, kA100, config) == "");
}

TEST_CASE("what simt cannot compute is refused with what would work") {
  const Problem good = tiny_problem();
  const Config config = plain_config();
  CHECK(refusal(good, kA100, config) == "");
  Problem problem = good;
  problem.dtype = DType::bf16;
  CHECK(refusal(problem, kA100, config).find("mma") != std::string::npos);
  problem = good;
  problem.math = Math::tf32;
  CHECK(refusal(problem, kA100, config).find("ieee") != std::string::npos);
  CHECK(refusal(good, {Target::Kind::cuda, "sm_70", 4}, config).find("sm_75") != std::string::npos);
  CHECK(refusal(good, {Target::Kind::cpu, "generic", 4}, config).find("sm_75") != std::string::npos);
}

TEST_CASE("numbers that do not go together are refused with what would work") {
  const auto why = [](auto change, std::string_view arch = "sm_80") {
    Config config = plain_config();
    change(config);
    Problem problem = tiny_problem();
    return refusal(problem, {Target::Kind::cuda, std::string(arch), 4}, config);
  };
  CHECK(why([](Config& c) { c.variant = Variant::vector; }).find("simt") != std::string::npos);
  CHECK(why([](Config& c) { c.tile_n = 12; }).find("multiple of 8") != std::string::npos);
  CHECK(why([](Config& c) { c.tile_n = 256; }).find("8 to 128") != std::string::npos);
  CHECK(why([](Config& c) { c.tile_out = 3; }).find("divides the 16 rows") != std::string::npos);
  CHECK(why([](Config& c) { c.tile_out = 0; }).find("divides the 16 rows") != std::string::npos);
  CHECK(why([](Config& c) { c.warps = 32; }).find("threads") != std::string::npos);
  CHECK(why([](Config& c) { c.stages = 3; }) == "");
  CHECK(why([](Config& c) { c.stages = 3; }, "sm_75").find("1 to 2") != std::string::npos);
  CHECK(why([](Config& c) { c.packed = true; }).find("packed=0") != std::string::npos);
}

TEST_CASE("a tile that takes more shared memory than a CTA has is refused") {
  Config config = plain_config();
  config.tile_n = 128;
  config.stages = 4;
  config.warps = 8;
  config.tile_out = 8;
  CHECK(refusal(skewed_problem({128, 8}, 128), kA100, config).find("bytes of shared memory") !=
        std::string::npos);
  config.stages = 3;
  CHECK(refusal(skewed_problem({128, 8}, 128), kA100, config) == "");
}

}  // namespace
}  // namespace sparsekiln::cuda
