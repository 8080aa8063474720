#include "tests/kernels/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <string_view>

#include <sparsekiln/error.h>

#include "compiler/cuda/emit.h"
#include "tests/kernels/pairwise.h"

#ifdef SPARSEKILN_CPU
#include "compiler/cpu/emit.h"
#endif

namespace sparsekiln::test {
namespace {

/// x and W, and y.
struct Types {
  DType dtype, out_dtype;
  Math math = Math::ieee;
};

/// The values of every axis for one family of kernels. The case list is this data; what does not go together
/// is left to `validate`.
struct Space {
  std::vector<BlockShape> blocks;
  std::vector<std::int64_t> batches = {1, 2, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 64, 100};
  std::vector<std::int32_t> tile_n;
  std::vector<std::string> archs;
  std::vector<std::int32_t> tile_out;
  std::vector<std::int32_t> stages;
  std::vector<std::int32_t> warps;
  std::vector<Types> types;
  std::vector<std::int32_t> workers = {1, 7, 132};
  std::vector<std::int32_t> split = {1, 3};
  std::vector<TableForm> tables;
  std::vector<OperandA> operand_a = {OperandA::x};
  std::vector<std::int32_t> rows = {1};
  std::vector<std::int32_t> merge = {1};
  std::vector<bool> packed = {false};
  std::vector<bool> wide = {false, true};
  std::vector<bool> strict_absent = {false, true};
  Variant variant = Variant::simt;
};

/// The levels that this host runs, its best one last.
std::vector<std::string> host_levels(const std::string& best) {
  constexpr std::array<std::string_view, 4> kLevels = {"x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16"};
  std::vector<std::string> levels;
  for (const std::string_view level : kLevels) {
    levels.emplace_back(level);
    if (level == best) return levels;
  }
  return {best};
}

Space with_all_blocks(Variant variant) {
  Space space;
  space.variant = variant;
  for (const std::int32_t out : {8, 16, 32, 64, 128})
    for (const std::int32_t in : {8, 16, 32, 64, 128}) space.blocks.push_back({out, in});
  return space;
}

Space vector_space(const Target& target) {
  Space space = with_all_blocks(Variant::vector);
  space.archs = host_levels(target.arch);
  space.tile_n = {1, 2, 4, 16, 32, 48, 64, 128};
  space.tile_out = {0, 1, 3, 8};
  space.stages = {1};
  space.warps = {1};
  space.types = {{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}};
  space.tables = {TableForm::constant};
  space.packed = {false, true};
  return space;
}

/// Without it two stages are the most: what never fits only costs the search for cases its time.
bool has_async_copy(const Target& target) { return target.compute_capability() >= 80; }

/// bf16 and tf32.
bool has_tensor_core_types(const Target& target) { return target.compute_capability() >= 80; }

Space simt_space(const Target& target) {
  Space space = with_all_blocks(Variant::simt);
  space.archs = {target.arch};
  space.tile_n = {8, 16, 32, 40, 64, 128};
  space.tile_out = {1, 2, 4, 8};
  space.stages = {1, 2};
  if (has_async_copy(target)) space.stages.insert(space.stages.end(), {3, 4});
  space.warps = {1, 2, 4, 8};
  space.types = {{DType::f32, DType::f32}};
  space.tables = {TableForm::constant, TableForm::global, TableForm::attached};
  return space;
}

Space mma_space(const Target& target) {
  Space space = with_all_blocks(Variant::mma);
  space.archs = {target.arch};
  space.tile_n = {8, 16, 24, 32, 48, 64, 128};
  space.tile_out = {0, 8, 16, 32};
  space.stages = {1, 2};
  if (has_async_copy(target)) space.stages.insert(space.stages.end(), {3, 4, 6});
  space.warps = {1, 2, 3, 4, 8};
  space.types = {{DType::f16, DType::f16}, {DType::f16, DType::f32}};
  if (has_tensor_core_types(target))
    space.types.insert(
        space.types.end(),
        {{DType::bf16, DType::bf16}, {DType::bf16, DType::f32}, {DType::f32, DType::f32, Math::tf32}});
  space.tables = {TableForm::constant, TableForm::global, TableForm::attached};
  space.operand_a = {OperandA::x, OperandA::w};
  space.rows = {1, 2, 3, 4};
  space.merge = {1, 2, 4};
  return space;
}

Space stream_space(const Target& target) {
  Space space = with_all_blocks(Variant::stream);
  space.archs = {target.arch};
  space.tile_n = {8, 16, 32};
  space.tile_out = {0};
  space.stages = {2, 3, 5, 8};
  space.warps = {1, 2, 4, 8};
  space.types = {{DType::f32, DType::f32}, {DType::f16, DType::f16}, {DType::f16, DType::f32}};
  if (has_tensor_core_types(target))
    space.types.insert(
        space.types.end(),
        {{DType::bf16, DType::bf16}, {DType::bf16, DType::f32}, {DType::f32, DType::f32, Math::tf32}});
  space.tables = {TableForm::constant, TableForm::global, TableForm::attached};
  space.operand_a = {OperandA::x, OperandA::w};
  return space;
}

std::vector<Space> spaces_of(const Target& target) {
  if (target.kind == Target::Kind::cpu) return {vector_space(target)};
  return {simt_space(target), mma_space(target), stream_space(target)};
}

/// The axes in the order of a Row. Those that `fits` looks at come first: a row that cannot be completed is
/// then known for one after a few thousand tries.
enum Axis : std::size_t {
  kBlock,
  kTileN,
  kTileOut,
  kStages,
  kWarps,
  kArch,
  kTypes,
  kOperandA,
  kRows,
  kMerge,
  kStrict,
  kLayout,
  kBatch,
  kWorkers,
  kSplit,
  kTable,
  kPacked,
  kWide,
  kAxes
};

std::vector<int> sizes_of(const Space& space) {
  const auto size = [](const auto& values) { return static_cast<int>(values.size()); };
  std::vector<int> sizes(kAxes);
  sizes[kBlock] = size(space.blocks);
  sizes[kLayout] = size(test_layouts());
  sizes[kBatch] = size(space.batches);
  sizes[kTileN] = size(space.tile_n);
  sizes[kArch] = size(space.archs);
  sizes[kTileOut] = size(space.tile_out);
  sizes[kStages] = size(space.stages);
  sizes[kWarps] = size(space.warps);
  sizes[kTypes] = size(space.types);
  sizes[kOperandA] = size(space.operand_a);
  sizes[kRows] = size(space.rows);
  sizes[kMerge] = size(space.merge);
  sizes[kWorkers] = size(space.workers);
  sizes[kSplit] = size(space.split);
  sizes[kTable] = size(space.tables);
  sizes[kPacked] = size(space.packed);
  sizes[kWide] = size(space.wide);
  sizes[kStrict] = size(space.strict_absent);
  return sizes;
}

/// Unset axes take their first value.
Case case_of(const Space& space, const Row& row) {
  const auto pick = [&](const auto& values, Axis axis) {
    return values[static_cast<std::size_t>(std::max(row[axis], 0))];
  };
  Config config;
  config.variant = space.variant;
  config.tile_n = pick(space.tile_n, kTileN);
  config.tile_out = pick(space.tile_out, kTileOut);
  config.stages = pick(space.stages, kStages);
  config.warps = pick(space.warps, kWarps);
  config.split = pick(space.split, kSplit);
  config.table = pick(space.tables, kTable);
  config.operand_a = pick(space.operand_a, kOperandA);
  config.rows = pick(space.rows, kRows);
  config.merge = pick(space.merge, kMerge);
  config.packed = pick(space.packed, kPacked);

  Case test;
  test.layout = &test_layouts()[static_cast<std::size_t>(std::max(row[kLayout], 0))];
  test.wide = pick(space.wide, kWide);
  test.options = Suite::current().options(pick(space.blocks, kBlock), pick(space.batches, kBatch));
  test.options.dtype = pick(space.types, kTypes).dtype;
  test.options.out_dtype = pick(space.types, kTypes).out_dtype;
  test.options.math = pick(space.types, kTypes).math;
  test.options.strict_absent = pick(space.strict_absent, kStrict);
  test.options.target = Suite::current().target_of(pick(space.archs, kArch), pick(space.workers, kWorkers));
  test.options.config = config;
  return test;
}

/// Whether config, block and types go together; true while one of them is not yet chosen.
bool fits(const Space& space, const Row& row) {
  for (const Axis axis :
       {kBlock, kTileN, kArch, kTileOut, kStages, kWarps, kTypes, kOperandA, kRows, kMerge, kStrict})
    if (row[axis] == kUnset) return true;
  const Case test = case_of(space, row);
  const Problem problem = make_problem(Layout(), test.options);
  const Target target = resolve_target(test.options.target);
  try {
    if (target.kind == Target::Kind::cuda) cuda::validate(problem, target, *test.options.config);
#ifdef SPARSEKILN_CPU
    if (target.kind == Target::Kind::cpu) cpu::validate(problem, target, *test.options.config);
#endif
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_argument) throw;
    return false;
  }
  return true;
}

/// Every problem, with values of the other axes that fit it, drawn from a linear congruential sequence.
std::vector<Row> every_problem(const Space& space) {
  const std::vector<int> sizes = sizes_of(space);
  std::vector<Row> rows;
  std::uint32_t turn = 0;
  const auto draw = [&](int size) {
    turn = turn * 1664525u + 1013904223u;
    return static_cast<int>((std::uint64_t{turn} * static_cast<std::uint64_t>(size)) >> 32);
  };
  for (int block = 0; block < sizes[kBlock]; ++block)
    for (int layout = 0; layout < sizes[kLayout]; ++layout)
      for (int batch = 0; batch < sizes[kBatch]; ++batch)
        for (int types = 0; types < sizes[kTypes]; ++types) {
          Row row(kAxes, 0);
          do {
            for (std::size_t axis = 0; axis < kAxes; ++axis) row[axis] = draw(sizes[axis]);
            row[kBlock] = block;
            row[kLayout] = layout;
            row[kBatch] = batch;
            row[kTypes] = types;
          } while (!fits(space, row));
          rows.push_back(row);
        }
  return rows;
}

std::vector<Case> make_cases() {
  const char* full = std::getenv("SPARSEKILN_TEST_FULL");
  std::vector<Case> cases;
  for (const Space& space : spaces_of(Suite::current().device()->target())) {
    const std::vector<Row> rows =
        full != nullptr && std::string_view(full) == "1"
            ? every_problem(space)
            : pairwise(sizes_of(space), [&](const Row& row) { return fits(space, row); }).rows;
    for (std::size_t i = 0; i < rows.size(); i += Suite::current().every())
      cases.push_back(case_of(space, rows[i]));
  }
  return cases;
}

}  // namespace

std::string Case::to_string() const {
  const Layout grid = layout->make();
  return fmt::format(
      "layout {} ({}x{}, {} blocks), block {}, batch {}, {} to {}{}{}, target {}, config '{}'{}",
      layout->name, grid.rows(), grid.cols(), grid.blocks(), sparsekiln::to_string(options.block),
      sparsekiln::to_string(options.batch), name(options.dtype),
      name(options.out_dtype.value_or(options.dtype)), options.math == Math::tf32 ? " by tf32" : "",
      options.strict_absent ? ", strict absent" : "", options.target, sparsekiln::to_string(*options.config),
      wide ? ", rows 16 elements apart" : "");
}

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = make_cases();
  return cases;
}

std::string run(const Case& test) {
  constexpr std::uint64_t kSeed = 1;
  std::string inputs_text = "compiling";
  try {
    const Layout layout = test.layout->make();
    const Kernel kernel = compile(layout, test.options);
    const Problem problem = make_problem(layout, test.options);
    const std::int64_t n = problem.batch.bound();
    const std::int64_t padding = test.wide ? 16 : 0;
    std::size_t turn = 0;
    for (const auto& [kind, planted] : {std::pair{Inputs::small_integers, false},
                                        {Inputs::random, false},
                                        {Inputs::small_integers, true}}) {
      // Where rows are merged, an Inf may reach the others: Problem::strict_absent is for those who mind.
      if (planted && test.options.config->merge > 1) continue;
      inputs_text = fmt::format("{}{} seed {}", kind == Inputs::random ? "random" : "small integers",
                                planted ? " with planted Inf and NaN" : "", kSeed);
      HostInputs inputs = make_inputs(problem, n, kind, kSeed, problem.in_features() + padding);
      if (planted) plant_non_finite(problem, inputs, kSeed);
      inputs_text += Suite::current().take_seed(turn++);
      const Verdict verdict = launch_and_check(kernel, problem, inputs, padding);
      if (!verdict.ok)
        return fmt::format("{}, {}: {} ({} wrong, {} unwritten, {} stray)", test.to_string(), inputs_text,
                           verdict.first_failure, verdict.wrong, verdict.unwritten, verdict.stray);
    }
  } catch (const std::exception& error) {
    return fmt::format("{}, {}: {}", test.to_string(), inputs_text, error.what());
  }
  return {};
}

}  // namespace sparsekiln::test
