// Convolutions of all geometries, on the device of this run, against their definition.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "autotune/default_plan.h"
#include "autotune/space.h"
#include "runtime/build_job.h"
#include "runtime/test_launch.h"
#include "tests/kernels/pairwise.h"
#include "tests/kernels/suite.h"
#include "tests/kernels/table.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

struct Types {
  DType dtype;
  DType out;
  Math math = Math::ieee;
};
constexpr std::array kTypes{
    Types{DType::f32, DType::f32},   Types{DType::f16, DType::f32},
    Types{DType::bf16, DType::bf16}, Types{DType::f32, DType::f32, Math::tf32},
    Types{DType::f64, DType::f64},
};
constexpr std::array kOperations{Operation::forward, Operation::grad_input, Operation::grad_weight};
constexpr std::array kBlocks{BlockShape{8, 8}, BlockShape{16, 16}, BlockShape{32, 32}, BlockShape{16, 32},
                             BlockShape{32, 8}};
constexpr std::array kAlignments{16, 8, 4, 2};
constexpr int kGlu = 3;          // the epilogue of forward that is a glu pair
constexpr int kEnds = 6;         // epilogues of forward, derivatives and by-products of gradients
constexpr int kLayouts = 3;      // of blocks: one, all, and random ones
constexpr int kMasks = 3;        // of taps: none, one for all blocks, and one for each
constexpr int kCuts = 4;         // partial last blocks: none, of inputs, of outputs, of both
constexpr int kBlockScales = 3;  // none, block scales, and in the gradient of the weight theirs, too

enum Axis : std::size_t {
  kDimensions,
  kKernel,
  kStride,
  kDilation,
  kBefore,
  kAfter,
  kOperation,
  kTransposed,
  kBlock,
  kType,
  kEnd,
  kLayout,
  kMask,
  kCut,
  kBlockScale,
  kImages,
  kDynamic,
  kPinned,
  kWide,
  kAlignment,
  kWorkers,
  kOrder,
  kInput,
  kAttached,
  kAxes
};
constexpr std::array<int, kAxes> kSizes{3,
                                        5,
                                        3,
                                        2,
                                        3,
                                        3,
                                        3,
                                        2,
                                        kBlocks.size(),
                                        kTypes.size(),
                                        kEnds,
                                        kLayouts,
                                        kMasks,
                                        kCuts,
                                        kBlockScales,
                                        3,
                                        2,
                                        3,
                                        2,
                                        kAlignments.size(),
                                        2,
                                        2,
                                        2,
                                        2};

struct Trial {
  Layout layout;
  Options options;
  TestLaunchShape launch;

  [[nodiscard]] std::string to_string() const {
    return fmt::format(
        "{} of '{}', input {}, {} x {} blocks of {}, {} present, {} to {} features, {} images of {}, {} to "
        "{}{}, aligned to {}, epilogue {}, derivative {}{}{}, {}, padding {}, target {}, {}, config '{}'",
        name(options.operation), sparsekiln::to_string(options.convolution), fmt::join(launch.input, " x "),
        layout.rows(), layout.cols(), sparsekiln::to_string(options.block), layout.blocks(),
        options.in_features, options.out_features, launch.n, sparsekiln::to_string(options.batch),
        name(options.dtype), name(*options.out_dtype), options.math == Math::tf32 ? " by tf32" : "",
        options.alignment, sparsekiln::to_string(options.epilogue), name(options.derivative),
        options.bias_gradient ? ", bias gradient" : "",
        options.block_scale_gradient ? ", block scales and their gradient"
        : options.block_scales       ? ", block scales"
                                     : "",
        name(options.order), launch.padding, options.target, name(options.specialization),
        options.config ? sparsekiln::to_string(*options.config) : "default");
  }
};

/// Numbers that belong to the axes of a geometry, so that what is no axis differs from row to row.
std::mt19937 numbers_of(const Row& row) {
  std::seed_seq seed(row.begin(), row.begin() + kEnd + 1);
  return std::mt19937(seed);
}

Convolution geometry_of(const Row& row, std::mt19937& numbers) {
  constexpr std::array kLargest{37, 9, 5};
  Convolution convolution;
  convolution.dimensions = row[kDimensions] + 1;
  const auto up_to = [&](int most) {
    return 1 + static_cast<std::int32_t>(numbers() % static_cast<unsigned>(most));
  };
  for (std::size_t i = 3 - static_cast<std::size_t>(convolution.dimensions); i < 3; ++i) {
    // The last dimension has the row's own numbers; the others have some that are no larger.
    const bool last = i == 2;
    const int kernel = row[kKernel] + 1;
    convolution.kernel[i] = last ? kernel : up_to(std::min(kernel, 3));
    convolution.stride[i] = last ? row[kStride] + 1 : up_to(row[kStride] + 1);
    convolution.dilation[i] = last ? row[kDilation] + 1 : up_to(row[kDilation] + 1);
    convolution.padding_before[i] = row[kBefore];
    convolution.padding_after[i] = row[kAfter];
    convolution.input[i] = up_to(kLargest[static_cast<std::size_t>(row[kDimensions])]);
  }
  convolution.transposed = row[kTransposed] == 1;
  for (std::size_t i = 3 - static_cast<std::size_t>(convolution.dimensions); i < 3; ++i)
    if (convolution.transposed)
      convolution.output_padding[i] = up_to(std::max(convolution.stride[i], convolution.dilation[i])) - 1;
  return convolution;
}

/// Half of the taps, and one in any case.
std::vector<bool> mask_of(int number, const Layout& layout, std::int32_t taps, std::mt19937& numbers) {
  if (number == 0 || layout.blocks() == 0) return {};
  std::vector<bool> mask(static_cast<std::size_t>(number == 1 ? taps : taps * layout.blocks()));
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = numbers() % 2 == 0;
  mask[numbers() % mask.size()] = true;
  return mask;
}

Layout layout_of(int number, std::mt19937& numbers) {
  const auto up_to = [&](unsigned most) { return static_cast<std::int64_t>(1 + numbers() % most); };
  if (number == 0) return patterns::random(1, 1, 1, 1);
  const std::int64_t rows = up_to(4);
  const std::int64_t cols = up_to(4);
  return patterns::random(rows, cols, number == 1 ? 1 : 0.5, numbers());
}

/// Lets launches have an input of any extents up to some more.
void make_dynamic(Convolution& convolution, std::mt19937& numbers) {
  convolution.dynamic = true;
  for (std::size_t i = 3 - static_cast<std::size_t>(convolution.dimensions); i < 3; ++i)
    convolution.input[i] += static_cast<std::int32_t>(numbers() % 7);
}

/// Some features less than the blocks have, of inputs, outputs or both.
void cut(Options& options, const Layout& layout, int number, std::mt19937& numbers) {
  const bool transposed = options.convolution.transposed;
  const auto features = [&](std::int32_t blocks, std::int32_t side) {
    return std::int64_t{blocks} * side - 1 - static_cast<std::int64_t>(numbers() % (side - 1u));
  };
  const std::int64_t of_rows = features(layout.rows(), options.block.out);
  const std::int64_t of_cols = features(layout.cols(), options.block.in);
  if (number % 2 == 1) options.in_features = transposed ? of_rows : of_cols;
  if (number / 2 == 1) options.out_features = transposed ? of_cols : of_rows;
}

/// What an operation does besides, by its number.
void add_ends(Options& options, int number) {
  if (options.operation == Operation::forward) {
    const std::array<Epilogue, kEnds> epilogues{
        Epilogue{},
        Epilogue{.bias = true, .activation = Activation::relu},
        Epilogue{.scale = true, .residual = true},
        Epilogue{.scale = true, .bias = true, .activation = Activation::silu, .glu = true, .residual = true},
        Epilogue{.edge_bias = true},
        Epilogue{.scale = true, .activation = Activation::relu, .residual = true, .edge_bias = true}};
    options.epilogue = epilogues[static_cast<std::size_t>(number)];
    if (options.dtype == DType::f64) options.epilogue.edge_bias = false;
    return;
  }
  options.epilogue.scale = number == 1 || number == 3;
  options.derivative = number % 4 >= 2 ? Activation::gelu_tanh : Activation::none;
  // On CUDA targets that of a transposed convolution is left to others.
  const bool has_bias = Suite::current().on_cpu() || !options.convolution.transposed;
  options.bias_gradient = options.operation == Operation::grad_weight && number % 2 == 1 && has_bias;
}

/// One of all configs that the compiler takes, or none.
std::optional<Config> pinned(const Layout& layout, const Options& options, std::mt19937& numbers) {
  const Problem problem = make_problem(layout, options);
  const Space space = space_of(problem, resolve_target(options.target), problem.batch.bound());
  if (space.configs.empty()) return std::nullopt;
  return space.configs[numbers() % space.configs.size()];
}

Trial trial_of(const Row& row) {
  std::mt19937 numbers = numbers_of(row);
  const Types& types = kTypes[static_cast<std::size_t>(row[kType])];
  const std::int64_t n = row[kImages];
  const bool dynamic = row[kDynamic] == 1;
  Trial trial;
  const Convolution geometry = geometry_of(row, numbers);  // first, as in exists()
  trial.layout = layout_of(row[kLayout], numbers);
  trial.options =
      Suite::current().options(kBlocks[static_cast<std::size_t>(row[kBlock])],
                               dynamic ? Batch::up_to(n + 2) : Batch(n), {types.dtype, types.math});
  trial.options.out_dtype = types.out;
  trial.options.operation = kOperations[static_cast<std::size_t>(row[kOperation])];
  trial.options.convolution = geometry;
  trial.options.convolution.tap_mask = mask_of(row[kMask], trial.layout, geometry.taps(), numbers);
  cut(trial.options, trial.layout, row[kCut], numbers);
  trial.options.alignment = kAlignments[static_cast<std::size_t>(row[kAlignment])];
  trial.options.target = Suite::current().target_with(row[kWorkers] != 0          ? 132
                                                      : Suite::current().on_cpu() ? 1
                                                                                  : 3);
  add_ends(trial.options, row[kEnd]);
  // f64, and on the cpu an edge bias, go with channels-last activations alone.
  const bool edges = Suite::current().on_cpu() && trial.options.epilogue.edge_bias;
  if (row[kOrder] == 1 && !edges && types.dtype != DType::f64)
    trial.options.order = ActivationOrder::feature_major;
  // The situations of an edge bias follow from one input.
  if (row[kInput] == 1 && !trial.options.epilogue.edge_bias) {
    make_dynamic(trial.options.convolution, numbers);
    trial.launch.input = geometry.input;
  }
  trial.options.block_scales = row[kBlockScale] != 0;
  trial.options.block_scale_gradient =
      row[kBlockScale] == 2 && trial.options.operation == Operation::grad_weight && types.dtype != DType::f64;
  if (row[kAttached] == 1) trial.options.specialization = Specialization::attached;
  trial.launch.n = n;
  trial.launch.padding = row[kWide] == 1 ? 16 : 0;
  if (!dynamic && row[kPinned] != 0) trial.options.config = pinned(trial.layout, trial.options, numbers);
  return trial;
}

/// Whether there is such a convolution: values with an output, and a type that the device has.
bool exists(const Row& row) {
  if (std::find(row.begin(), row.begin() + kEnd + 1, kUnset) != row.begin() + kEnd + 1) return true;
  const bool on_cpu = Suite::current().on_cpu();
  const Types& types = kTypes[static_cast<std::size_t>(row[kType])];
  if (types.math == Math::tf32 ? on_cpu : types.dtype == DType::f64 && !on_cpu) return false;
  // A mask for each block belongs to a layout, and on CUDA targets so do cut blocks, gradients of the weight
  // and channels-first images.
  if (row[kAttached] == 1 &&
      (row[kMask] == 2 ||
       (!on_cpu && (kOperations[static_cast<std::size_t>(row[kOperation])] == Operation::grad_weight ||
                    row[kCut] > 0 || row[kOrder] == 1))))
    return false;
  const auto bytes = static_cast<int>(std::max(size_of(types.dtype), size_of(types.out)));
  if (row[kAlignment] != kUnset && kAlignments[static_cast<std::size_t>(row[kAlignment])] < bytes)
    return false;
  if (!on_cpu && Suite::current().device()->target().compute_capability() < 80 &&
      (types.dtype == DType::bf16 || types.math == Math::tf32))
    return false;
  // A glu pair is multiplied block by block, and tensor cores need 32 bytes of it.
  const bool glu = row[kOperation] == 0 && row[kEnd] == kGlu;
  const bool tensor_cores = !on_cpu && (types.dtype != DType::f32 || types.math == Math::tf32);
  const BlockShape& block = kBlocks[static_cast<std::size_t>(row[kBlock])];
  const auto inputs = static_cast<std::size_t>(row[kTransposed] == 1 ? block.out : block.in);
  if (glu && tensor_cores && inputs * size_of(types.dtype) < 32) return false;
  std::mt19937 numbers = numbers_of(row);
  try {
    validate(geometry_of(row, numbers));
  } catch (const Error&) {
    return false;
  }
  return true;
}

/// A larger layout that the same attached code serves.
Trial enlarged(Trial trial, std::size_t number) {
  const Layout& own = trial.layout;
  trial.layout = patterns::random(own.rows() + 2, own.cols() + 1, 0.7, number);
  Options& options = trial.options;
  std::int64_t& of_rows = options.convolution.transposed ? options.in_features : options.out_features;
  std::int64_t& of_cols = options.convolution.transposed ? options.out_features : options.in_features;
  if (of_rows != 0) of_rows += std::int64_t{2} * options.block.out;
  if (of_cols != 0) of_cols += options.block.in;
  return trial;
}

/// The fault of an attached kernel's code, as far as results do not show it; empty where there is none.
std::string not_shared(const Trial& trial, std::size_t number) {
  const Trial other = enlarged(trial, number);
  const Built first = build(other.layout, other.options);
  const Built second = build(trial.layout, trial.options);
  return second.from == From::compiled || second.key != first.key ? "another layout is other code" : "";
}

/// What a launch leaves, in the baked kernel with the same numbers.
std::vector<std::byte> image_of_baked(const Trial& trial, const TestLaunch& launch) {
  Options options = trial.options;
  options.specialization = Specialization::tiered;
  const Kernel baked = compile(trial.layout, options);
  baked.wait();
  const auto operands = launch.place(baked, Suite::current().device());
  operands->launch(baked);
  Suite::current().device()->synchronize();
  std::vector<std::byte> image;
  (void)operands->judge(baked.binary().plan, &image);
  return baked.tier() == Tier::baked ? image : std::vector<std::byte>();
}

std::string failure_of(const Trial& trial, std::size_t number) {
  const bool attached = trial.options.specialization == Specialization::attached;
  try {
    if (attached)
      if (std::string failure = not_shared(trial, number); !failure.empty()) return failure;
    const Kernel kernel = compile(trial.layout, trial.options);
    const Problem problem = make_problem(trial.layout, trial.options);
    for (const Inputs kind : {Inputs::small_integers, Inputs::random}) {
      if (Suite::current().only_pairs() && (kind == Inputs::random) == (number % 2 == 0)) continue;
      const std::string seed = Suite::current().take_seed(number);
      const auto launch = make_test_launch(problem, trial.launch, kind, number);
      const auto operands = launch->place(kernel, Suite::current().device());
      operands->launch(kernel);
      Suite::current().device()->synchronize();
      std::vector<std::byte> image;
      const CheckResult result = operands->judge(kernel.binary().plan, &image);
      if (!result.ok)
        return fmt::format("{}{}: {}", kind == Inputs::random ? "random" : "small integers", seed,
                           result.first_failure);
      if (attached && kind == Inputs::random && image != image_of_baked(trial, *launch))
        return fmt::format("random{}: other bits than baked", seed);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

Row drawn(std::uint64_t seed) {
  std::mt19937_64 numbers(seed);
  Row row(kAxes);
  do {
    for (std::size_t axis = 0; axis < kAxes; ++axis)
      row[axis] = static_cast<int>(numbers() % static_cast<std::uint64_t>(kSizes[axis]));
  } while (!exists(row));
  return row;
}

/// The failure of the smallest trial that steps from a row lead to: axes' values that are less.
std::string shrunk(Row row, std::string failure, std::size_t number) {
  for (bool again = true; again;) {
    again = false;
    for (std::size_t axis = 0; axis < kAxes && !again; ++axis)
      for (int value = 0; value < row[axis] && !again; ++value) {
        Row smaller = row;
        smaller[axis] = value;
        if (!exists(smaller)) continue;
        const std::string fails = failure_of(trial_of(smaller), number);
        if (fails.empty()) continue;
        row = smaller;
        failure = fails;
        again = true;
      }
  }
  return fmt::format("{}: {}", trial_of(row).to_string(), failure);
}

}  // namespace

TEST_CASE("random convolutions are what their definition says" * doctest::test_suite("tables")) {
  const std::size_t all = Suite::current().emulated() && !Suite::full() ? 70 : 300;  // others each day
  const std::size_t trials = all / Suite::current().every();
  const std::uint64_t first = Suite::seed_of_today() * 1000;
  std::vector<sparsekiln::test::Part> parts;
  for (std::size_t i = 0; i < trials; ++i) {
    const Row row = drawn(first + i);
    const Trial trial = trial_of(row);
    parts.push_back({trial.to_string(), trial.layout, trial.options, [row, trial, i] {
                       const std::string failure = failure_of(trial, i);
                       return failure.empty() ? failure : shrunk(row, failure, i);
                     }});
  }
  run_table(parts);
}

TEST_CASE("convolutions are right for every pair of geometry, operation, block, type, epilogue and config" *
          doctest::test_suite("tables")) {
  std::vector<sparsekiln::test::Part> parts;
  const CoveringArray array = pairwise(kSizes, exists);
  for (std::size_t i = 0; i < array.rows.size(); i += Suite::current().every()) {
    const Trial trial = trial_of(array.rows[i]);
    parts.push_back(
        {trial.to_string(), trial.layout, trial.options, [trial, i] { return failure_of(trial, i); }});
  }
  MESSAGE(parts.size(), " convolutions");
  REQUIRE(parts.size() * Suite::current().every() >= 15);
  run_table(parts);
}

TEST_CASE(
    "few blocks of a convolution's gradient are shared by many CTAs, and come out the same every time") {
  if (Suite::current().on_cpu()) return;
  // In every precision, and in one of them transposed with a derivative, with a mask, and with a single tap.
  const std::vector<Precision> precisions = Suite::current().precisions();
  std::vector<std::pair<Precision, const char*>> cases;
  for (const Precision precision : precisions)
    cases.emplace_back(precision, "kernel=3 stride=2 padding=1 input=23x24");
  for (const char* const geometry : {"kernel=3 stride=2 padding=1 transposed input=23x24",
                                     "kernel=3 padding=1 input=23x24 taps=110010011", "kernel=1 input=23x24"})
    cases.emplace_back(precisions.back(), geometry);
  for (const auto& [precision, geometry] : cases) {
    Options options = Suite::current().options({16, 16}, Batch::up_to(5), precision);
    options.operation = Operation::grad_weight;
    options.convolution = parse_convolution(geometry);
    options.epilogue.scale = true;
    options.bias_gradient = !options.convolution.transposed;
    if (options.convolution.transposed) options.derivative = Activation::relu;
    options.block_scales = options.block_scale_gradient =
        true;  // whose taps are runs of their own, or of several
    options.target = Suite::current().target_with(132);
    const Layout layout = patterns::random(2, 2, 0.75, 3);
    const Kernel kernel = compile(layout, options);
    const Entry& entry = kernel.binary().entries.back();
    CHECK(entry.workspace.bytes_per_tile > 0);
    const Problem problem = make_problem(layout, options);
    for (const std::int64_t n : {5, 1}) {
      const auto launch = make_test_launch(problem, {.n = n}, Inputs::random, 5);
      std::vector<std::byte> first;
      for (std::size_t i = 0; i < Suite::current().repeats(); ++i) {
        (void)Suite::current().take_seed(i);
        const auto operands = launch->place(kernel, Suite::current().device());
        operands->launch(kernel);
        Suite::current().device()->synchronize();
        std::vector<std::byte> image;
        const CheckResult result = operands->judge(kernel.binary().plan, &image);
        CAPTURE(precision.to_string());
        CAPTURE(i);
        CHECK_MESSAGE(result.ok, result.first_failure);
        if (i == 0) first = image;
        REQUIRE(image == first);
      }
    }
  }
}

TEST_CASE("the gradient of a convolution by its input is right where padding times stride exceeds 2^31") {
  Options options = Suite::current().options({16, 16}, 1);
  options.operation = Operation::grad_input;
  options.convolution = parse_convolution("kernel=2 stride=4000 padding=600000 input=10");
  const Layout layout = patterns::random(1, 1, 1, 1);
  const Kernel kernel = compile(layout, options);
  const auto launch = make_test_launch(make_problem(layout, options), {}, Inputs::small_integers, 1);
  const auto operands = launch->place(kernel, Suite::current().device());
  operands->launch(kernel);
  Suite::current().device()->synchronize();
  const CheckResult result = operands->judge(kernel.binary().plan, nullptr);
  CHECK_MESSAGE(result.ok, result.first_failure);
}

TEST_CASE("a convolution is right where strips of an image share a panel, and images a tile") {
  // Strips of one tile and of several, jobs of several images, the last of them not full, and columns of
  // blocks without a block, which are not packed.
  for (const auto& [geometry, images] : {std::pair("kernel=3x3 padding=1 input=40x37", 1),
                                         std::pair("kernel=3x3 padding=1 stride=2 input=61x40", 3),
                                         std::pair("kernel=3x3 padding=1 input=4x4", 23),
                                         std::pair("kernel=3 dilation=2 padding=2 input=5", 70)}) {
    for (const auto& [operation, side, workers] :
         {std::tuple(Operation::forward, 24, 1), std::tuple(Operation::forward, 6, 1),
          std::tuple(Operation::forward, 6, 2), std::tuple(Operation::forward, 24, 3),
          std::tuple(Operation::grad_input, 24, 1), std::tuple(Operation::grad_input, 6, 1),
          std::tuple(Operation::grad_input, 24, 2), std::tuple(Operation::grad_input, 6, 3)}) {
      Options options = Suite::current().options({16, 16}, Batch::up_to(images));
      options.operation = operation;
      options.convolution = parse_convolution(geometry);
      options.target = Suite::current().target_with(workers);
      const Layout layout = patterns::random(side, side, 0.05, 7);
      const Kernel kernel = compile(layout, options);
      const Problem problem = make_problem(layout, options);
      for (const std::int64_t n : {images, (images + 1) / 2}) {
        const auto launch = make_test_launch(problem, {.n = n}, Inputs::random, 3);
        const auto operands = launch->place(kernel, Suite::current().device());
        operands->launch(kernel);
        Suite::current().device()->synchronize();
        const CheckResult result = operands->judge(kernel.binary().plan, nullptr);
        CAPTURE(geometry);
        CAPTURE(n);
        CAPTURE(workers);
        CHECK_MESSAGE(result.ok, result.first_failure);
      }
    }
  }
}

TEST_CASE("one kernel of a dynamic convolution serves inputs of any extents up to its bound") {
  for (const char* const geometry :
       {"kernel=3x3 padding=1 input=up-to:40x37", "kernel=3x3 padding=1 stride=2 input=up-to:40x37",
        "kernel=1x1 input=up-to:40x37",
        "kernel=4x3 padding=2:1x1:0 stride=2x1 transposed input=up-to:40x37"}) {
    for (const Operation operation : kOperations) {
      Options options = Suite::current().options({16, 16}, Batch::up_to(9));
      options.operation = operation;
      options.convolution = parse_convolution(geometry);
      options.target = Suite::current().target_with(3);
      const Layout layout = patterns::random(5, 6, 0.4, 7);
      const Kernel kernel = compile(layout, options);
      const Problem problem = make_problem(layout, options);
      for (const Convolution::Extents& input :
           {Convolution::Extents{1, 40, 37}, {1, 40, 5}, {1, 6, 37}, {1, 4, 4}, {1, 3, 3}, {1, 19, 23}}) {
        const TestLaunchShape shape{.n = input[1] < 7 ? 9 : 2, .input = input};
        const auto launch = make_test_launch(problem, shape, Inputs::random, 3);
        const auto operands = launch->place(kernel, Suite::current().device());
        operands->launch(kernel);
        Suite::current().device()->synchronize();
        const CheckResult result = operands->judge(kernel.binary().plan, nullptr);
        CAPTURE(geometry);
        CAPTURE(fmt::format("{}", fmt::join(input, " x ")));
        CHECK_MESSAGE(result.ok, result.first_failure);
      }
    }
  }
}

TEST_CASE("a dynamic convolution is right far below its bound in every precision and order") {
  const auto is_right = [](const Options& options, const Layout& layout) {
    const Kernel kernel = compile(layout, options);
    const Problem problem = make_problem(layout, options);
    for (const Convolution::Extents& input : {Convolution::Extents{1, 1, 1}, {1, 2, 5}, {1, 7, 1}}) {
      const TestLaunchShape shape{.n = input[1] < 7 ? 5 : 1, .input = input};
      const auto launch = make_test_launch(problem, shape, Inputs::random, 3);
      const auto operands = launch->place(kernel, Suite::current().device());
      operands->launch(kernel);
      Suite::current().device()->synchronize();
      const CheckResult result = operands->judge(kernel.binary().plan, nullptr);
      CAPTURE(to_string(options.convolution));
      CAPTURE(name(options.operation));
      CAPTURE(name(options.order));
      CAPTURE(name(options.dtype));
      CAPTURE(fmt::format("{}", fmt::join(input, " x ")));
      CHECK_MESSAGE(result.ok, result.first_failure);
    }
  };
  const Layout layout = patterns::random(3, 4, 0.5, 7);
  const std::array geometries{"kernel=3x3 padding=1 stride=2 input=up-to:19x23",
                              "kernel=4x3 padding=2:1x1:0 stride=2x1 transposed input=up-to:19x23"};
  const std::vector<Precision> precisions = Suite::current().precisions();
  for (std::size_t g = 0; g < geometries.size(); ++g)
    for (std::size_t p = 0; p < precisions.size(); ++p)
      for (std::size_t operation = 0; operation < kOperations.size(); ++operation)
        for (std::size_t order = 0; order < 2; ++order) {
          if (precisions[p].dtype == DType::f64 && order == 1) continue;  // refused
          // Half of them have every pair of two of these.
          if (Suite::current().only_pairs() && (g + p + operation + order) % 2 != 0) continue;
          Options options = Suite::current().options({16, 16}, Batch::up_to(5), precisions[p]);
          options.operation = kOperations[operation];
          options.convolution = parse_convolution(geometries[g]);
          options.order = order == 0 ? ActivationOrder::batch_major : ActivationOrder::feature_major;
          options.target = Suite::current().target_with(3);
          is_right(options, layout);
        }
}
