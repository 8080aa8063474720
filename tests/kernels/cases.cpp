#include "tests/kernels/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <memory>
#include <string_view>
#include <utility>

#include <sparsekiln/error.h>

#include "compiler/cpu_levels.h"
#include "compiler/cuda/emit.h"
#include "compiler/element.h"
#include "compiler/spmm.h"

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

/// Special ways to read operands, and to write y.
struct Loads {
  std::int32_t cut_in = 0;  ///< features that the last block column lacks
  std::int32_t cut_out = 0;
  std::int32_t alignment = 16;  ///< 0: the least that the types allow
  bool gates = false;
  Activation derivative = Activation::none;

  [[nodiscard]] bool cut() const { return cut_in != 0 || cut_out != 0; }
};

/// The values of every axis for one kernel family. The case list is this data; `validate` excludes
/// combinations. If a family has fewer values of an axis of kShared than others, it has the first ones.
struct Space {
  std::vector<std::int32_t> block_out = {8, 16, 32, 64, 128};
  std::vector<std::int32_t> block_in = {8, 16, 32, 64, 128};
  std::vector<std::int64_t> batches = {1, 7, 8, 9, 15, 17, 64, 2, 13, 31, 100};
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
  std::vector<std::int32_t> panels = {0};
  std::vector<Operation> operations = {Operation::forward};
  std::vector<ActivationOrder> orders = {ActivationOrder::batch_major};
  std::vector<Epilogue> epilogues = {{}};
  std::vector<Loads> loads = {{}};
  std::vector<bool> packed = {false};
  std::vector<bool> wide = {false, true};
  std::vector<bool> strict_absent = {false, true};
  std::vector<Beside> beside = {Beside::nothing, Beside::random, Beside::planted};
  Variant variant = Variant::simt;
  double most_emulated_work = 1e6;  ///< multiplications of a case on the emulator
};

/// The levels that this host runs, the highest one last.
std::vector<std::string> host_levels(const std::string& best) {
  std::vector<std::string> levels;
  for (const cpu::Level& level : cpu::levels())
    if (level.name != "generic" && cpu::runs(best, level.name)) levels.emplace_back(level.name);
  if (levels.empty()) return {best};
  return levels;
}

/// Each part alone, and together with the others. The first one is empty, the second is the one that
/// gradients have, too.
std::vector<Epilogue> all_epilogues() {
  return {{},
          {.scale = true},
          {.bias = true},
          {.activation = Activation::relu},
          {.bias = true, .activation = Activation::gelu},
          {.activation = Activation::gelu_tanh},
          {.scale = true, .activation = Activation::silu},
          {.residual = true},
          {.scale = true, .bias = true, .residual = true},
          {.scale = true, .bias = true, .activation = Activation::relu, .residual = true}};
}
/// Epilogues with two weights, and with four, last.
std::vector<Epilogue> all_and_glu_epilogues() {
  std::vector<Epilogue> epilogues = all_epilogues();
  epilogues.push_back({.activation = Activation::silu, .glu = true});
  epilogues.push_back(
      {.scale = true, .bias = true, .activation = Activation::gelu, .glu = true, .residual = true});
  epilogues.push_back({.lstm = true});
  epilogues.push_back({.lstm = true, .keep = true});
  return epilogues;
}

/// With layer normalisations. The last is a gradient's, where there are any.
std::vector<Epilogue> with_normalisations(std::vector<Epilogue> epilogues, bool gradients = true) {
  epilogues.push_back({.layer_norm = true});
  epilogues.push_back({.activation = Activation::relu, .layer_norm = true, .multiply = true, .add = true});
  epilogues.push_back({.lstm = true, .layer_norm = true, .multiply = true});
  if (gradients) epilogues.push_back({.residual = true, .lstm = true, .layer_norm = true});
  return epilogues;
}

Space vector_space(const Target& target) {
  Space space;
  space.variant = Variant::vector;
  space.archs = host_levels(target.arch);
  space.tile_n = {1, 2, 4, 16, 32, 48, 64, 128};
  space.tile_out = {0, 1, 3, 8};
  space.stages = {1};
  space.warps = {1};
  space.types = {{DType::f32, DType::f32},
                 {DType::bf16, DType::bf16},
                 {DType::bf16, DType::f32},
                 {DType::f16, DType::f16},
                 {DType::f16, DType::f32}};
  space.tables = {TableForm::constant};
  space.packed = {false, true};
  space.epilogues = with_normalisations(all_and_glu_epilogues());
  space.operations = {Operation::forward, Operation::grad_input};
  space.orders = {ActivationOrder::batch_major, ActivationOrder::feature_major};
  return space;
}

/// The types that plain passes compute with, which have fewer choices.
Space plain_space(const Target& target) {
  Space space = vector_space(target);
  space.tile_n = {1, 2, 4, 8, 16, 32, 64};
  space.tile_out = {0};
  space.packed = {false};
  space.types.clear();
  for (const Element& element : elements()) {
    if (element.cpu != CpuPasses::plain || element.forward_only) continue;
    space.types.push_back({element.value, element.value});
    if (element.arithmetic != element.value) space.types.push_back({element.value, element.arithmetic});
  }
  return space;
}

/// `derivative`: dy is multiplied by one.
bool is_of_gradients(const Epilogue& epilogue, bool derivative) {
  if (epilogue.layer_norm) return !derivative;
  return epilogue == Epilogue{.scale = epilogue.scale};
}

/// Each alone, and together. The first three are those of `stream`, the first five and derivatives those of
/// `direct`.
std::vector<Loads> all_loads() {
  return {{},
          {.cut_in = 8, .cut_out = 5},
          {.cut_in = 8, .cut_out = 8},
          {.gates = true},
          {.cut_in = 40, .cut_out = 40, .gates = true},
          {.cut_in = 3, .cut_out = 5},
          {.cut_in = 7, .cut_out = 1, .alignment = 0},
          {.alignment = 8},
          {.gates = true},
          {.cut_in = 2, .cut_out = 6, .alignment = 8, .gates = true},
          {.derivative = Activation::relu},
          {.cut_in = 1, .cut_out = 3, .alignment = 0, .gates = true, .derivative = Activation::gelu}};
}

/// Without it there are at most two stages: values that never fit only slow the search for cases down.
bool has_async_copy(const Target& target) { return target.compute_capability() >= 80; }

/// bf16 and tf32.
bool has_tensor_core_types(const Target& target) { return target.compute_capability() >= 80; }

Space simt_space(const Target& target) {
  Space space;
  space.variant = Variant::simt;
  space.loads = all_loads();
  space.epilogues = with_normalisations(all_and_glu_epilogues());
  space.archs = {target.arch};
  space.tile_n = {8, 16, 40, 64, 128};
  space.tile_out = {1, 2, 4, 8};
  space.stages = {1, 2};
  if (has_async_copy(target)) space.stages.insert(space.stages.end(), {3, 4});
  space.warps = {1, 2, 4, 8};
  space.types = {{DType::f32, DType::f32}};
  space.operations = {Operation::forward, Operation::grad_input};
  space.orders = {ActivationOrder::batch_major, ActivationOrder::feature_major};
  space.tables = {TableForm::constant, TableForm::global, TableForm::attached};
  return space;
}

Space mma_space(const Target& target) {
  Space space;
  space.variant = Variant::mma;
  space.loads = all_loads();
  space.epilogues = with_normalisations(all_and_glu_epilogues());
  space.archs = {target.arch};
  space.tile_n = {8, 16, 24, 64, 128};
  space.tile_out = {0, 8, 16, 32};
  space.stages = {1, 2};
  if (has_async_copy(target)) space.stages.insert(space.stages.end(), {3, 6});
  space.warps = {1, 2, 3, 8};
  space.types = {{DType::f16, DType::f16}, {DType::f16, DType::f32}};
  if (has_tensor_core_types(target))
    space.types.insert(
        space.types.end(),
        {{DType::bf16, DType::bf16}, {DType::bf16, DType::f32}, {DType::f32, DType::f32, Math::tf32}});
  space.tables = {TableForm::constant, TableForm::global, TableForm::attached};
  space.operations = {Operation::forward, Operation::grad_input};
  space.orders = {ActivationOrder::batch_major, ActivationOrder::feature_major};
  space.operand_a = {OperandA::x, OperandA::w};
  space.rows = {1, 2, 3, 4};
  space.merge = {1, 2, 4};
  return space;
}

Space stream_space(const Target& target) {
  Space space;
  space.variant = Variant::stream;
  space.epilogues = with_normalisations(all_and_glu_epilogues(), false);
  space.loads = all_loads();
  space.loads.resize(3);
  space.batches.resize(7);
  space.archs = {target.arch};
  space.tile_n = {8, 16, 32};
  space.tile_out = {0, 8, 16};
  space.stages = {2, 3, 5, 8};
  space.warps = {1, 2, 4, 8, 16};
  space.types = {{DType::f32, DType::f32}, {DType::f16, DType::f16}, {DType::f16, DType::f32}};
  if (has_tensor_core_types(target))
    space.types.insert(
        space.types.end(),
        {{DType::bf16, DType::bf16}, {DType::bf16, DType::f32}, {DType::f32, DType::f32, Math::tf32}});
  space.tables = {TableForm::constant, TableForm::global, TableForm::attached};
  space.operand_a = {OperandA::x, OperandA::w};
  return space;
}

/// Chunks of a warp in registers: one or two.
Space direct_space(const Target& target) {
  Space space = stream_space(target);
  space.variant = Variant::direct;
  space.epilogues = with_normalisations(all_and_glu_epilogues());
  space.tile_n = {8, 16, 32, 64};
  space.loads = all_loads();
  space.loads.resize(5);
  space.loads.push_back({.derivative = Activation::relu});
  space.loads.push_back({.cut_in = 8, .cut_out = 8, .gates = true, .derivative = Activation::gelu});
  space.stages = {1, 2};
  space.panels = {0, 1};
  space.operations = {Operation::forward, Operation::grad_input};
  std::erase_if(space.types,
                [](const auto& type) { return type.dtype == DType::f32 && type.math == Math::ieee; });
  return space;
}

/// Its tiles are large, but the emulator multiplies them quickly.
Space wgmma_space(const Target& target) {
  Space space;
  space.variant = Variant::wgmma;
  space.block_out = {64, 128};
  space.block_in = {64, 128};
  space.epilogues = all_and_glu_epilogues();
  space.epilogues.resize(space.epilogues.size() - 2);
  space.archs = {target.arch};
  space.tile_n = {128, 256};
  space.tile_out = {0};
  space.stages = {2, 3, 5};
  space.warps = {12};
  space.types = {{DType::f16, DType::f16},
                 {DType::f16, DType::f32},
                 {DType::bf16, DType::bf16},
                 {DType::bf16, DType::f32},
                 {DType::f32, DType::f32, Math::tf32}};
  space.tables = {TableForm::constant, TableForm::global};
  space.operations = {Operation::forward, Operation::grad_input};
  space.rows = {1, 2, 4};
  space.merge = {1, 2, 4};
  space.most_emulated_work = HUGE_VAL;
  return space;
}

std::vector<Space> spaces_of(const Target& target) {
  if (target.kind == Target::Kind::cpu) return {vector_space(target), plain_space(target)};
  std::vector<Space> spaces{simt_space(target), mma_space(target), stream_space(target),
                            direct_space(target)};
  if (target.compute_capability() == 90) spaces.push_back(wgmma_space(target));
  return spaces;
}

/// The axes in the order of a Row. Those that Fit examines come first, so that a row that cannot be completed
/// is recognized after a few thousand tries.
enum Axis : std::size_t {
  kBlockOut,
  kBlockIn,
  kTileN,
  kTileOut,
  kStages,
  kWarps,
  kArch,
  kTypes,
  kOperandA,
  kRows,
  kMerge,
  kPacked,
  kOperation,
  kOrder,
  kEpilogue,
  kLoads,
  kStrict,
  kLayout,
  kBatch,
  kWorkers,
  kSplit,
  kTable,
  kPanels,
  kWide,
  kBeside,
  kAxes
};

/// Axes that are the same for all kernel families: a pair of their values needs to be tested with only one of
/// them.
constexpr std::array<std::size_t, 10> kShared{kOrder, kEpilogue, kLoads, kStrict, kLayout,
                                              kBatch, kWorkers,  kSplit, kWide,   kBeside};

std::vector<int> sizes_of(const Space& space) {
  const auto size = [](const auto& values) { return static_cast<int>(values.size()); };
  std::vector<int> sizes(kAxes);
  sizes[kBlockOut] = size(space.block_out);
  sizes[kBlockIn] = size(space.block_in);
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
  sizes[kPanels] = size(space.panels);
  sizes[kPacked] = size(space.packed);
  sizes[kOperation] = size(space.operations);
  sizes[kOrder] = size(space.orders);
  sizes[kEpilogue] = size(space.epilogues);
  sizes[kLoads] = size(space.loads);
  sizes[kWide] = size(space.wide);
  sizes[kStrict] = size(space.strict_absent);
  sizes[kBeside] = size(space.beside);
  return sizes;
}

/// Block rows and columns of each test layout.
const std::vector<BlockShape>& grids() {
  static const std::vector<BlockShape> all = [] {
    std::vector<BlockShape> grids;
    for (const NamedLayout& named : test_layouts()) {
      const Layout layout = named.make();
      grids.push_back({layout.rows(), layout.cols()});
    }
    return grids;
  }();
  return all;
}

/// Features along one axis of a layout; 0 if none are missing.
std::int64_t features(std::int32_t blocks, std::int32_t side, std::int32_t cut) {
  return blocks == 0 || cut == 0 ? 0 : std::int64_t{blocks} * side - cut;
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
  config.panels = pick(space.panels, kPanels);
  config.packed = pick(space.packed, kPacked);

  Case test;
  test.layout = &test_layouts()[static_cast<std::size_t>(std::max(row[kLayout], 0))];
  test.wide = pick(space.wide, kWide);
  test.beside = pick(space.beside, kBeside);
  const BlockShape block{pick(space.block_out, kBlockOut), pick(space.block_in, kBlockIn)};
  test.options = Suite::current().options(block, pick(space.batches, kBatch));
  test.options.operation = pick(space.operations, kOperation);
  test.options.order = pick(space.orders, kOrder);
  test.options.epilogue = pick(space.epilogues, kEpilogue);
  test.options.dtype = pick(space.types, kTypes).dtype;
  test.options.out_dtype = pick(space.types, kTypes).out_dtype;
  test.options.math = pick(space.types, kTypes).math;
  const Loads& loads = pick(space.loads, kLoads);
  const auto widest = std::max(size_of(test.options.dtype), size_of(*test.options.out_dtype));
  test.options.alignment = loads.alignment != 0 ? loads.alignment : static_cast<std::int32_t>(widest);
  test.options.gates = loads.gates;
  test.options.derivative = loads.derivative;
  const BlockShape grid = pick(grids(), kLayout);
  test.options.in_features = features(grid.in, block.in, loads.cut_in);
  test.options.out_features = features(grid.out, block.out, loads.cut_out);
  test.options.strict_absent = pick(space.strict_absent, kStrict);
  test.options.target = Suite::current().target_of(pick(space.archs, kArch), pick(space.workers, kWorkers));
  test.options.config = config;
  return test;
}

/// Whether config, block and types go together. Most rows that are tried do not, and refusing one takes the
/// emitter some microseconds, so results are kept. This class knows that y's type does not matter, that of an
/// epilogue only the number of weights matters, of the loads only the derivative, and that strict_absent and
/// gates matter only if rows are merged. A case that is refused all the same fails when it is run.
///
/// Cases of more than `most_work` multiplications do not fit either: the largest blocks, layouts and batches
/// need not occur together.
class Fit {
 public:
  Fit(const Space& space, double most_work) : space_(space), sizes_(sizes_of(space)), most_work_(most_work) {
    for (const NamedLayout& named : test_layouts()) blocks_.push_back(named.make().blocks());
    for (const std::string& arch : space.archs)
      targets_.push_back(resolve_target(Suite::current().target_of(arch, space.workers.front())));
    std::size_t count = kOperands;
    for (const Axis axis : kLookedAt) count *= static_cast<std::size_t>(sizes_[axis]);
    known_.assign(kKinds * count, Known::nothing);
  }

  /// True while one of the axes has no value yet.
  [[nodiscard]] bool operator()(const Row& row) {
    if (row[kStrict] > 0 && row[kMerge] > 0) return false;
    // If rows are merged, an Inf may reach the others; Problem::strict_absent excludes that.
    if (row[kMerge] > 0 && row[kBeside] != kUnset &&
        space_.beside[static_cast<std::size_t>(row[kBeside])] == Beside::planted)
      return false;
    const Loads& loads = space_.loads[static_cast<std::size_t>(std::max(row[kLoads], 0))];
    if (loads.gates && row[kMerge] > 0) return false;
    if (loads.cut_in >= space_.block_in[static_cast<std::size_t>(std::max(row[kBlockIn], 0))] ||
        loads.cut_out >= space_.block_out[static_cast<std::size_t>(std::max(row[kBlockOut], 0))])
      return false;
    // The features that such a gradient's product sums are those of dy, in whole pieces of 16 bytes.
    if (space_.variant == Variant::direct && row[kOperation] > 0 && loads.cut_out % 8 != 0) return false;
    const Epilogue& epilogue = space_.epilogues[static_cast<std::size_t>(std::max(row[kEpilogue], 0))];
    if (epilogue.lstm && !epilogue.layer_norm && (loads.gates || loads.cut_out != 0)) return false;
    // Derivatives belong to gradients, which have short epilogues, and merged rows only in variant wgmma.
    const bool derivative = loads.derivative != Activation::none;
    const bool gradient = row[kOperation] > 0 || derivative;
    const bool merges = row[kMerge] > 0 && space_.variant != Variant::wgmma;
    if (gradient && (row[kOperation] == 0 || merges || !is_of_gradients(epilogue, derivative))) return false;
    if (derivative && row[kPanels] > 0) return false;
    if (epilogue.layer_norm && !normalises(row, epilogue, loads)) return false;
    if (loads.cut() && row[kTable] != kUnset &&
        space_.tables[static_cast<std::size_t>(row[kTable])] == TableForm::attached)
      return false;
    if (work(row) > most_work_) return false;
    std::size_t index = 0;
    for (const Axis axis : kLookedAt) {
      if (row[axis] == kUnset) return true;
      index = index * static_cast<std::size_t>(sizes_[axis]) + static_cast<std::size_t>(row[axis]);
    }
    if (row[kTypes] == kUnset) return true;
    const Types& types = space_.types[static_cast<std::size_t>(row[kTypes])];
    index = index * kOperands +
            (types.math == Math::tf32 ? kOperands - 1 : static_cast<std::size_t>(types.dtype));
    const std::size_t kind = epilogue.layer_norm                    ? 4
                             : epilogue.glu                         ? 1
                             : loads.derivative != Activation::none ? 2
                             : epilogue.lstm                        ? 3
                                                                    : 0;
    // What does not fit without these does not fit with them: that is known before they are chosen.
    return is_known_to_fit(row, kKinds * index, kEpilogue, kLoads) &&
           (kind == 0 || is_known_to_fit(row, kKinds * index + kind));
  }

 private:
  enum class Known : std::uint8_t { nothing, fits, does_not };
  static constexpr std::size_t kKinds = 5;  ///< of what a config must fit
  static constexpr std::size_t kOperands =
      static_cast<std::size_t>(kLastDType) + 2;  ///< types of x and W, and f32 by tf32
  static constexpr std::array kLookedAt{kBlockOut, kBlockIn, kTileN, kTileOut, kStages,    kWarps, kArch,
                                        kOperandA, kRows,    kMerge, kPacked,  kOperation, kOrder};

  /// Whether rows are batch rows, a residual is a gradient's, and a layout has four gates where it must.
  [[nodiscard]] static bool normalises(const Row& row, const Epilogue& epilogue, const Loads& loads) {
    if (row[kOrder] > 0 || (epilogue.residual && row[kOperation] == 0)) return false;
    const bool needs_gates = epilogue.lstm && row[kOperation] == 0;
    if (needs_gates && loads.cut_out != 0) return false;
    return !needs_gates || row[kLayout] == kUnset ||
           grids()[static_cast<std::size_t>(row[kLayout])].out % 4 == 0;
  }
  /// The multiplications of a case, with whole batch tiles; an axis without a value counts as little as it
  /// can.
  [[nodiscard]] double work(const Row& row) const {
    const auto of = [&](const auto& values, Axis axis) {
      return row[axis] == kUnset ? 1.0 : static_cast<double>(values[static_cast<std::size_t>(row[axis])]);
    };
    const double tile = of(space_.tile_n, kTileN);
    const double entries = std::ceil(of(space_.batches, kBatch) / tile) * tile;
    return of(space_.block_out, kBlockOut) * of(space_.block_in, kBlockIn) * entries * of(blocks_, kLayout);
  }
  /// Looks the result up, with some axes unset.
  [[nodiscard]] bool is_known_to_fit(const Row& row, std::size_t index, auto... unset) {
    Known& known = known_[index];
    if (known == Known::nothing) {
      Row plain = row;
      ((plain[unset] = kUnset), ...);
      known = is_valid(plain) ? Known::fits : Known::does_not;
    }
    return known == Known::fits;
  }
  [[nodiscard]] bool is_valid(const Row& row) const {
    const Case test = case_of(space_, row);
    Problem problem;
    problem.operation = test.options.operation;
    problem.order = test.options.order;
    problem.block = test.options.block;
    problem.batch = test.options.batch;
    problem.dtype = test.options.dtype;
    problem.out_dtype = test.options.dtype;
    problem.math = test.options.math;
    problem.epilogue = test.options.epilogue;
    problem.derivative = test.options.derivative;
    const Target& target = targets_[static_cast<std::size_t>(row[kArch])];
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

  Space space_;
  std::vector<int> sizes_;
  double most_work_;
  std::vector<std::int64_t> blocks_;  ///< of each layout
  std::vector<Target> targets_;
  std::vector<Known> known_;
};

/// Every problem, with values of the other axes that fit it, drawn from a linear congruential sequence.
std::vector<Row> every_problem(const Space& space) {
  Fit fits(space, HUGE_VAL);
  const std::vector<int> sizes = sizes_of(space);
  std::vector<Row> rows;
  std::uint32_t turn = 0;
  const auto draw = [&](int size) {
    turn = turn * 1664525u + 1013904223u;
    return static_cast<int>((std::uint64_t{turn} * static_cast<std::uint64_t>(size)) >> 32);
  };
  const int sides = sizes[kBlockIn];
  for (int block = 0; block < sizes[kBlockOut] * sides; ++block)
    for (int layout = 0; layout < sizes[kLayout]; ++layout)
      for (int batch = 0; batch < sizes[kBatch]; ++batch)
        for (int types = 0; types < sizes[kTypes]; ++types) {
          Row row(kAxes, 0);
          do {
            for (std::size_t axis = 0; axis < kAxes; ++axis) row[axis] = draw(sizes[axis]);
            row[kBlockOut] = block / sides;
            row[kBlockIn] = block % sides;
            row[kLayout] = layout;
            row[kBatch] = batch;
            row[kTypes] = types;
          } while (!fits(row));
          rows.push_back(row);
        }
  return rows;
}

Family family_of(const Space& space) {
  const double most_work = Suite::current().emulated() ? space.most_emulated_work : HUGE_VAL;
  const auto fits = std::make_shared<Fit>(space, most_work);
  return {sizes_of(space), [fits](const Row& row) { return (*fits)(row); }};
}

std::vector<Case> make_cases() {
  std::vector<Case> cases;
  std::vector<Space> spaces = spaces_of(Suite::current().device()->target());
  for (std::size_t family = 0; family < spaces.size(); ++family) {
    Space& space = spaces[family];
    std::vector<Row> rows;
    if (Suite::full()) {
      std::erase(space.beside, Beside::nothing);
      rows = every_problem(space);
    } else {
      rows = case_arrays().arrays[family].rows;
    }
    for (std::size_t i = 0; i < rows.size(); i += Suite::current().every())
      cases.push_back(case_of(space, rows[i]));
  }
  return cases;
}

/// On a device a case is run with all kinds of inputs; on the emulator, which is slower, with its own.
bool is_run(const Case& test, Beside beside) {
  if (Suite::current().emulated()) return test.beside == beside;
  return beside != Beside::planted || test.options.config->merge == 1;
}

}  // namespace

std::string Case::to_string() const {
  const Layout grid = layout->make();
  std::string loads;
  if (options.in_features != 0 || options.out_features != 0)
    loads += fmt::format(", {} to {} features", options.in_features, options.out_features);
  if (options.alignment != 16) loads += fmt::format(", aligned to {}", options.alignment);
  if (options.gates) loads += ", gates";
  if (options.derivative != Activation::none)
    loads += fmt::format(", derivative {}", name(options.derivative));
  return fmt::format(
      "{} {}, epilogue {}{}, layout {} ({}x{}, {} blocks), block {}, batch {}, {} to {}{}{}, target {}, "
      "config '{}'{}",
      name(options.operation), name(options.order), sparsekiln::to_string(options.epilogue), loads,
      layout->name, grid.rows(), grid.cols(), grid.blocks(), sparsekiln::to_string(options.block),
      sparsekiln::to_string(options.batch), name(options.dtype),
      name(options.out_dtype.value_or(options.dtype)), options.math == Math::tf32 ? " by tf32" : "",
      options.strict_absent ? ", strict absent" : "", options.target, sparsekiln::to_string(*options.config),
      wide ? ", rows 16 elements apart" : "");
}

const CaseArrays& case_arrays() {
  static const CaseArrays arrays = [] {
    CaseArrays made;
    for (const Space& space : spaces_of(Suite::current().device()->target()))
      made.families.push_back(family_of(space));
    made.shared.assign(kShared.begin(), kShared.end());
    made.arrays = pairwise(made.families, made.shared);
    return made;
  }();
  return arrays;
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
    const Spmm product(problem);
    const std::int64_t width =
        packed_stride(product, product.dtype, product.feature_major() ? n : product.in_features());
    std::size_t turn = 0;
    for (const Beside beside : {Beside::nothing, Beside::random, Beside::planted}) {
      const std::size_t seed_turn = turn++;
      if (beside != Beside::nothing && !is_run(test, beside)) continue;
      const bool planted = beside == Beside::planted;
      const Inputs kind = beside == Beside::random ? Inputs::random : Inputs::small_integers;
      inputs_text = fmt::format("{}{} seed {}", kind == Inputs::random ? "random" : "small integers",
                                planted ? " with planted Inf and NaN" : "", kSeed);
      HostInputs inputs = make_inputs(problem, n, kind, kSeed, width + padding);
      if (planted) plant_non_finite(problem, inputs, kSeed);
      inputs_text += Suite::current().take_seed(seed_turn);
      const CheckResult check_result = launch_and_check(kernel, problem, inputs, padding);
      if (!check_result.ok)
        return fmt::format("{}: {} ({} wrong, {} unwritten, {} stray)", inputs_text,
                           check_result.first_failure, check_result.wrong, check_result.unwritten,
                           check_result.stray);
    }
  } catch (const std::exception& error) {
    return fmt::format("{}: {}", inputs_text, error.what());
  }
  return {};
}

}  // namespace sparsekiln::test
