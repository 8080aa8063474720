#include "tests/kernels/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <memory>
#include <string_view>
#include <utility>

#include <sparsekiln/convolution.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/emit.h"
#include "compiler/spmm.h"

#ifdef SPARSEKILN_CPU
#include "compiler/cpu/emit.h"
#endif

namespace sparsekiln::test {
namespace {

/// `derivative`: dy is multiplied by one.
bool is_of_gradients(const Epilogue& epilogue, bool derivative) {
  if (epilogue.layer_norm) return !derivative;
  return epilogue == Epilogue{.scale = epilogue.scale};
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
  kGeometry,
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
  sizes[kGeometry] = size(space.geometries);
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
  config.knobs[0] = pick(space.panels, kPanels);
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
  test.options.convolution = parse_convolution(pick(space.geometries, kGeometry));
  test.options.block_scales = loads.block_scales;
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
/// block scales matter only if rows are merged. A case that is refused all the same fails when it is run.
///
/// Cases of more than `most_work` multiplications do not fit either: the largest blocks, layouts and batches
/// need not occur together.
class Fit {
 public:
  Fit(const Space& space, double most_work) : space_(space), sizes_(sizes_of(space)), most_work_(most_work) {
    for (const NamedLayout& named : test_layouts()) blocks_.push_back(named.make().blocks());
    for (const std::string& geometry : space.geometries) {
      positions_.push_back(parse_convolution(geometry).output_positions());
      taps_.push_back(parse_convolution(geometry).taps());
    }
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
    if (loads.block_scales && row[kMerge] > 0) return false;
    if (loads.cut_in >= space_.block_in[static_cast<std::size_t>(std::max(row[kBlockIn], 0))] ||
        loads.cut_out >= space_.block_out[static_cast<std::size_t>(std::max(row[kBlockOut], 0))])
      return false;
    // The features that such a gradient's product sums are those of dy, in whole pieces of 16 bytes.
    if (space_.variant == Variant::direct && row[kOperation] > 0 && loads.cut_out % 8 != 0) return false;
    const Epilogue& epilogue = space_.epilogues[static_cast<std::size_t>(std::max(row[kEpilogue], 0))];
    if (epilogue.lstm && !epilogue.layer_norm && (loads.block_scales || loads.cut_out != 0)) return false;
    // Derivatives belong to gradients, which have short epilogues, and merged rows only in variant wgmma.
    const bool derivative = loads.derivative != Activation::none;
    const bool gradient = row[kOperation] > 0 || derivative;
    const bool merges = row[kMerge] > 0 && space_.variant != Variant::wgmma &&
                        space_.variant != Variant::wgmma_rows && space_.variant != Variant::halo;
    if (gradient && (row[kOperation] == 0 || merges || !is_of_gradients(epilogue, derivative))) return false;
    if (derivative && row[kPanels] > 0) return false;
    if (epilogue.layer_norm && !normalises(row, epilogue, loads)) return false;
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
  static constexpr std::array kLookedAt{kBlockOut, kBlockIn, kTileN, kTileOut,  kStages, kWarps,     kArch,
                                        kOperandA, kRows,    kMerge, kGeometry, kPacked, kOperation, kOrder};

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
    const double entries = std::ceil(of(space_.batches, kBatch) * of(positions_, kGeometry) / tile) * tile;
    return of(space_.block_out, kBlockOut) * of(space_.block_in, kBlockIn) * entries * of(blocks_, kLayout) *
           of(taps_, kGeometry);
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
    problem.convolution = test.options.convolution;
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
  std::vector<std::int64_t> blocks_;     ///< of each layout
  std::vector<std::int64_t> positions_;  ///< of y, and taps, of each geometry
  std::vector<std::int64_t> taps_;
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
  if (options.convolution.present())
    loads += fmt::format(", convolution '{}'", sparsekiln::to_string(options.convolution));
  if (options.alignment != 16) loads += fmt::format(", aligned to {}", options.alignment);
  if (options.block_scales) loads += ", block scales";
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
