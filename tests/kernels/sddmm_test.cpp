#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "compiler/cuda/sddmm.h"
#include "oracle/sddmm_check.h"
#include "runtime/resident_sddmm.h"
#include "tests/kernels/layouts.h"
#include "tests/kernels/pairwise.h"
#include "tests/kernels/suite.h"
#include "tests/kernels/table.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

/// The parts of a computation in addition to dw.
struct Extras {
  bool scale = false;
  float beta = 0;
  bool bias = false;
  bool block_scales = false;
  bool block_scale_gradient = false;
  Activation derivative = Activation::none;
};
constexpr std::array kExtras{
    Extras{},
    Extras{.scale = true},
    Extras{.scale = true, .beta = -1},
    Extras{.bias = true},
    Extras{.block_scales = true},
    Extras{.block_scales = true, .block_scale_gradient = true},
    Extras{.derivative = Activation::relu},
    Extras{.bias = true, .derivative = Activation::gelu},
    Extras{.block_scales = true, .derivative = Activation::silu},
    Extras{.scale = true, .beta = 2, .bias = true, .block_scales = true, .block_scale_gradient = true},
    Extras{.scale = true,
           .bias = true,
           .block_scales = true,
           .block_scale_gradient = true,
           .derivative = Activation::gelu_tanh},
};

struct Types {
  DType dtype;
  DType out;
  Math math = Math::ieee;
};
constexpr std::array kTypes{
    Types{DType::f32, DType::f32}, Types{DType::f32, DType::f32, Math::tf32}, Types{DType::f16, DType::f16},
    Types{DType::f16, DType::f32}, Types{DType::bf16, DType::bf16},           Types{DType::bf16, DType::f32},
};
constexpr std::array kSides{8, 16, 32, 64, 128};
constexpr std::array<std::int64_t, 9> kBatches{0, 1, 7, 16, 33, 64, 65, 100, 130};
constexpr std::array<std::int64_t, 3> kPairCounts{1, 2, 8};
constexpr std::array kWidths{1, 2, 4, 8};
constexpr std::array kChunks{8, 16, 32, 64, 128};
constexpr std::array kWarps{1, 2, 4, 8, 12};
constexpr std::size_t kWarpsOfWgmma = 1;  ///< the last of them
constexpr std::array kStages{2, 3, 5};
constexpr std::array kTileOuts{0, 4, 8};
constexpr std::array kOrders{ActivationOrder::batch_major, ActivationOrder::feature_major};
constexpr std::array kAlignments{16, 8, 4, 2};
constexpr std::array kForms{TableForm::constant, TableForm::global};
constexpr std::array kWorkers{1, 3, 132};

enum Axis : std::size_t {
  kBlockOut,
  kBlockIn,
  kType,
  kWidth,
  kChunk,
  kWarp,
  kStage,
  kTileOut,
  kWgmma,
  kOrder,
  kExtra,
  kLayout,
  kBatch,
  kPair,
  kForm,
  kWorker,
  kDynamic,
  kWide,
  kCut,
  kAlignment,
  kRandom,
  kAxes
};

/// Values of kWgmma: neither, variant wgmma, and variant grouped.
constexpr int kGrouped = 2;

/// One kernel, and how it is launched.
struct SddmmCase {
  Layout layout;
  Options options;
  SddmmLaunch launch;
  bool random = true;  ///< after small integers, random numbers

  [[nodiscard]] std::string to_string() const {
    return fmt::format(
        "{} x {} blocks of {}, {} present{}, batch {} of {}, {}, aligned to {}, {} pairs, {} to {}{}, extras "
        "{}{}{}{} {}, "
        "beta {}, target {}, config '{}'",
        layout.rows(), layout.cols(), sparsekiln::to_string(options.block), layout.blocks(),
        options.in_features != 0 ? ", cut" : "", launch.n, sparsekiln::to_string(options.batch),
        name(options.order), options.alignment, launch.pairs, name(options.dtype), name(*options.out_dtype),
        options.math == Math::tf32 ? " by tf32" : "", options.epilogue.scale ? "scale " : "",
        options.bias_gradient ? "bias " : "", options.block_scales ? "block scales " : "",
        options.block_scale_gradient ? "block scale gradient" : "", name(options.derivative), launch.beta,
        options.target, options.config ? sparsekiln::to_string(*options.config) : "default");
  }
};

Options options_of(const Extras& extras, const Types& types, BlockShape block, Batch batch) {
  Options options = Suite::current().options(block, batch, {types.dtype, types.math});
  options.operation = Operation::grad_weight;
  options.out_dtype = types.out;
  options.epilogue.scale = extras.scale;
  options.bias_gradient = extras.bias;
  options.block_scales = extras.block_scales;
  options.block_scale_gradient = extras.block_scale_gradient;
  options.derivative = extras.derivative;
  return options;
}

template <class Array>
auto value(const Array& array, const Row& row, Axis axis) {
  return array[static_cast<std::size_t>(row[axis] == kUnset ? 0 : row[axis])];
}

SddmmCase case_of(const Row& row) {
  const std::int64_t n = value(kBatches, row, kBatch);
  const bool dynamic = row[kDynamic] == 1;
  SddmmCase test;
  test.layout = value(test_layouts(), row, kLayout).make();
  test.options = options_of(value(kExtras, row, kExtra), value(kTypes, row, kType),
                            {value(kSides, row, kBlockOut), value(kSides, row, kBlockIn)},
                            dynamic ? Batch::up_to(n + 10) : Batch(n));
  test.options.order = value(kOrders, row, kOrder);
  test.options.alignment =
      std::max(value(kAlignments, row, kAlignment), static_cast<int>(size_of(test.options.dtype)));
  if (row[kCut] == 1) {
    test.options.in_features = std::int64_t{test.layout.cols()} * test.options.block.in - 3;
    test.options.out_features = std::int64_t{test.layout.rows()} * test.options.block.out - 6;
  }
  if (!dynamic) {  // otherwise the config is chosen
    Config config;
    config.variant = Suite::current().on_cpu()                                             ? Variant::vector
                     : row[kWgmma] == 1                                                    ? Variant::wgmma
                     : test.options.dtype == DType::f32 && test.options.math == Math::ieee ? Variant::simt
                                                                                           : Variant::mma;
    config.rows = value(kWidths, row, kWidth);
    config.tile_n = value(kChunks, row, kChunk);
    config.warps = value(kWarps, row, kWarp);
    config.stages = value(kStages, row, kStage);
    config.tile_out = value(kTileOuts, row, kTileOut);
    config.table = value(kForms, row, kForm);
    if (row[kWgmma] == kGrouped) {  // which has few numbers of its own
      config.variant = Variant::grouped;
      config.rows = row[kWidth] % 2 == 0 ? 12 : 6;
      config.tile_n = 32;
      config.warps = 16;
      config.stages = std::max(config.stages, 3);
      config.tile_out = 0;
    }
    test.options.config = config;
  }
  test.options.target = Suite::current().target_with(value(kWorkers, row, kWorker));
  test.launch = {.n = n,
                 .pairs = value(kPairCounts, row, kPair),
                 .padding = row[kWide] == 1 ? 16 : 0,
                 .beta = value(kExtras, row, kExtra).beta};
  test.random = !Suite::current().only_pairs() || row[kRandom] == 1;
  return test;
}

/// What a launch costs on the emulator, and whether integers stay exact.
bool affordable(const Row& row) {
  const double kMostWork = row[kWgmma] != 0 ? 2e7 : 1.5e6;  // which the emulator multiplies quickly
  static const std::vector<std::int64_t> blocks = [] {
    std::vector<std::int64_t> result;
    for (const NamedLayout& layout : test_layouts()) result.push_back(layout.make().blocks());
    return result;
  }();
  const double elements = value(kSides, row, kBlockOut) * value(kSides, row, kBlockIn);
  const auto entries = static_cast<double>(value(kBatches, row, kBatch) * value(kPairCounts, row, kPair));
  if (static_cast<double>(value(blocks, row, kLayout)) * elements * entries > kMostWork) return false;
  return !value(kExtras, row, kExtra).block_scale_gradient || entries * elements * 8 <= 0x1p24;
}

/// How many values each axis has.
std::vector<int> axis_sizes() {
  std::vector<int> sizes(kAxes);
  const auto set = [&](Axis axis, std::size_t size) { sizes[axis] = static_cast<int>(size); };
  set(kBlockOut, kSides.size());
  set(kBlockIn, kSides.size());
  set(kType, kTypes.size());
  set(kWidth, kWidths.size());
  set(kChunk, kChunks.size());
  const bool wgmma = Suite::current().device()->target().compute_capability() == 90;
  set(kWarp, kWarps.size() - (wgmma ? 0 : kWarpsOfWgmma));
  set(kWgmma, wgmma ? kGrouped + 1 : 1);
  set(kStage, kStages.size());
  set(kTileOut, kTileOuts.size());
  set(kOrder, kOrders.size());
  set(kAlignment, kAlignments.size());
  set(kLayout, test_layouts().size());
  set(kBatch, kBatches.size());
  set(kPair, kPairCounts.size());
  set(kExtra, kExtras.size());
  set(kForm, kForms.size());
  set(kWorker, kWorkers.size());
  set(kDynamic, 2);
  set(kWide, 2);
  set(kCut, 2);
  set(kRandom, 2);
  return sizes;
}

/// Whether there is a kernel with a row's values of the axes before kLayout.
bool is_built(const Row& row) {
  Row asked(kAxes, 0);
  std::copy(row.begin(), row.begin() + kLayout, asked.begin());
  asked[kForm] = 1;
  const SddmmCase test = case_of(asked);
  try {
    cuda::validate(Sddmm(make_problem(test.layout, test.options)), Suite::current().device()->target(),
                   *test.options.config);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_argument) throw;
    return false;
  }
  return true;
}

/// The same, evaluated once for each of their values.
bool exists(const Row& row) {
  static const std::vector<int> sizes = axis_sizes();
  static std::unordered_map<std::size_t, bool> known;
  std::size_t key = 0;
  for (std::size_t axis = 0; axis < kLayout; ++axis)
    key = key * static_cast<std::size_t>(sizes[axis]) + static_cast<std::size_t>(row[axis]);
  const auto [found, is_new] = known.try_emplace(key);
  if (is_new) found->second = is_built(row);
  return found->second;
}

/// Whether variants wgmma and grouped compute it, as far as `exists` does not know.
bool fits_wgmma(const Row& row) { return row[kDynamic] != 1 && row[kCut] != 1 && row[kAlignment] <= 0; }

bool fits(const Row& row) {
  if (row[kWgmma] > 0 && !fits_wgmma(row)) return false;
  const auto set = [&](Axis from, Axis to) {
    return std::find(row.begin() + from, row.begin() + to, kUnset) == row.begin() + to;
  };
  if (!set(kBlockOut, kLayout)) return true;
  if (!exists(row)) return false;
  return !set(kLayout, kForm) || affordable(row);
}

/// The bytes of everything that a launch computed.
std::vector<std::byte> images_of(const SddmmOutputs& outputs) {
  std::vector<std::byte> bytes;
  for (const PoisonedOutput* output : {&outputs.dw, &outputs.dbias, &outputs.dblock_scales})
    bytes.insert(bytes.end(), output->image().begin(), output->image().end());
  return bytes;
}

SddmmOutputs launched(const Kernel& kernel, const Sddmm& gradient, const SddmmInputs& inputs) {
  SddmmOutputs outputs(gradient, inputs);
  ResidentSddmm operands(gradient, Suite::current().device(), inputs, outputs);
  kernel(operands[0]);
  Suite::current().device()->synchronize();
  operands.fetch(outputs);
  return outputs;
}

/// Empty if all is right.
std::string run(const SddmmCase& test, std::size_t number) {
  try {
    const Kernel kernel = compile(test.layout, test.options);
    const Sddmm gradient(make_problem(test.layout, test.options));
    for (const Inputs kind : {Inputs::small_integers, Inputs::random}) {
      if (kind == Inputs::random && !test.random) continue;
      const std::string seed = Suite::current().take_seed(number);
      const SddmmInputs inputs = make_inputs(gradient, test.launch, kind, number);
      const CheckResult check_result = check(gradient, inputs, launched(kernel, gradient, inputs),
                                             adder_of(gradient.ieee(), kernel.binary().plan));
      if (!check_result.ok)
        return fmt::format("{}{}: {}", kind == Inputs::random ? "random" : "small integers", seed,
                           check_result.first_failure);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::vector<SddmmCase> all_gradients() {
  std::vector<SddmmCase> cases;
  const CoveringArray array = pairwise(axis_sizes(), fits);
  for (std::size_t i = 0; i < array.rows.size(); i += Suite::current().every())
    cases.push_back(case_of(array.rows[i]));
  return cases;
}

}  // namespace

TEST_CASE(
    "gradients of the weight are right for every pair of layout, block, batch, order, type, epilogue and "
    "config" *
    doctest::test_suite("tables")) {
  if (Suite::current().on_cpu()) return;
  static const std::vector<SddmmCase> cases = all_gradients();
  MESSAGE(cases.size(), " gradients of the weight");
  REQUIRE(cases.size() * Suite::current().every() >= test_layouts().size());
  std::vector<Part> parts;
  for (std::size_t i = 0; i < cases.size(); ++i)
    parts.push_back(
        {cases[i].to_string(), cases[i].layout, cases[i].options, [i] { return run(cases[i], i); }});
  run_table(parts);
}

// Their accumulators take all of the shared memory of sm_75, which has no room for the pairs then.
TEST_CASE("gradients of the largest blocks are right with every extra, for one pair and for eight") {
  if (Suite::current().on_cpu()) return;
  std::size_t number = 0;
  for (const Types& types : {kTypes[0], kTypes[2]})
    for (const ActivationOrder order : kOrders)
      for (const Extras& extras : {kExtras[0], kExtras[9], kExtras[10]})
        for (const std::int64_t pairs : {1, 8}) {
          SddmmCase test{.layout = patterns::random(1, 2, 0.5, 1),
                         .options = options_of(extras, types, {128, 128}, 7),
                         .launch = {.n = 7, .pairs = pairs, .beta = extras.beta}};
          test.options.order = order;
          CAPTURE(test.to_string());
          CHECK(run(test, ++number) == "");
        }
}

TEST_CASE("gradients of the largest blocks are right where slices of a batch meet in the workspace") {
  if (Suite::current().on_cpu()) return;
  for (const Types& types : {kTypes[0], kTypes[2]}) {
    SddmmCase test{.layout = patterns::random(1, 1, 1, 1),
                   .options = options_of(kExtras[3], types, {128, 128}, 1),
                   .launch = {.n = 1}};
    test.options.convolution = parse_convolution("kernel=1 input=32x32");
    const Kernel kernel = compile(test.layout, test.options);
    REQUIRE(kernel.workspace_bytes(1) > 0);
    CHECK(run(test, 1) == "");
  }
}

TEST_CASE("repeated gradients of the weight have the same bits") {
  if (Suite::current().on_cpu()) return;
  for (const Types& types : {kTypes[0], kTypes[3], kTypes[1]}) {
    if (types.dtype == DType::f32 && types.math == Math::tf32 &&
        Suite::current().device()->target().compute_capability() < 80)
      continue;
    const Options options = options_of(kExtras[9], types, {16, 32}, 70);
    const Layout layout = patterns::random(4, 8, 0.5, 5);
    const Kernel kernel = compile(layout, options);
    const Sddmm gradient(make_problem(layout, options));
    const SddmmInputs inputs = make_inputs(gradient, {.n = 70, .pairs = 2}, Inputs::random, 21);
    const std::vector<std::byte> first = images_of(launched(kernel, gradient, inputs));
    for (std::size_t i = 1; i < Suite::current().repeats(); ++i) {
      CAPTURE(i);
      (void)Suite::current().take_seed(i);  // another order
      REQUIRE(images_of(launched(kernel, gradient, inputs)) == first);
    }
  }
}
