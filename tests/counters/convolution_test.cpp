#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/patterns.h>

#include "autotune/cuda/work.h"
#include "compiler/block_runs.h"
#include "compiler/cuda/batch_slices.h"
#include "compiler/cuda/emit.h"
#include "compiler/problem_kind.h"
#include "compiler/schedule.h"
#include "oracle/convolution_reference.h"
#include "tests/counters/default_launch.h"

// What the emulator counts of the default kernels of convolutions.

namespace sparsekiln::test {
namespace {

struct Types {
  DType dtype;
  Math math;
};

struct Counted {
  std::string what;
  bool simt = false;
  bool halo = false;        ///< which has tests of its own (halo_test.cpp)
  std::int64_t slices = 1;  ///< CTAs that share a run
  Resources resources;
  std::uint64_t bytes_to_move = 0;
  /// Whether lanes of a warp copy for several taps: they may read the same positions, which are counted once.
  bool shares = false;
  std::int64_t instructions = 0;  ///< by the model
  std::vector<cuda::CountedLine> lines;
};

/// Points of `n` images for which a tap finds a row of x. Where a stride leaves classes of rows of dx that
/// have different extents, the smaller ones are computed like the largest: as if dx had as many rows.
std::int64_t points_of_tap(const Problem& problem, Operation operation, std::int64_t n, std::int32_t tap) {
  Convolution convolution = problem.convolution;
  const bool mirrored = operation == Operation::grad_input;
  for (std::size_t i = 0; i < 3 && mirrored; ++i) {
    const std::int32_t more =
        (convolution.stride[i] - convolution.input[i] % convolution.stride[i]) % convolution.stride[i];
    convolution.input[i] += more;
    convolution.padding_after[i] -= more;
  }
  REQUIRE(convolution.output() == problem.convolution.output());
  const std::int64_t rows = n * (mirrored ? convolution.input_positions() : convolution.output_positions());
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < rows; ++row)
    count += row_read(convolution, operation, row, tap) >= 0 ? 1 : 0;
  return count;
}

/// One load of x for each tap of each block, where x has the positions; W once for each tile, y once; the
/// parts of split rows as for linear layers.
std::uint64_t bytes_to_move(const Problem& problem, const Target& target, const Config& config,
                            std::int64_t n) {
  const Spmm product(problem);
  const Schedule schedule = make_schedule(product, target, config, n);
  const auto element = static_cast<std::int64_t>(size_of(product.dtype));
  std::int64_t x = 0;
  for (const Step& step : schedule.steps)
    if ((step.flags & kSameInput) == 0)
      x += points_of_tap(problem, problem.operation, n, step.input() % problem.taps()) * product.block.in *
           element;
  const std::int64_t tiles = product.batch_tiles(n, config);
  const std::int64_t w = tiles * product.layout.blocks() * product.block.out * product.block.in * element;
  const std::int64_t y =
      product.y_rows(n) * product.out_features() * static_cast<std::int64_t>(size_of(product.out_dtype));
  const std::int64_t part = std::int64_t{4} * config.rows * config.merge * product.block.out * config.tile_n;
  return static_cast<std::uint64_t>(x + w + y +
                                    tiles * (schedule.partials * (2 * part + 4) + schedule.counters * 4));
}

/// CTAs that share a run of the gradient of the weight.
std::int64_t slices_of(const Problem& problem, const Target& target, const Config& config) {
  const Sddmm gradient(problem);
  const BlockRuns schedule = make_block_runs(gradient, target, config);
  return cuda::batch_slices(gradient, target, config, static_cast<std::int64_t>(schedule.runs.size()));
}

/// dy once for each run, x once for each block and tap, dw once; where slices share runs, their sums to the
/// workspace and back, with 4 bytes for an arrival and 4 to take a counter back.
std::uint64_t bytes_of_gradient(const Problem& problem, const Target& target, const Config& config,
                                std::int64_t n) {
  const Sddmm gradient(problem);
  const BlockRuns schedule = make_block_runs(gradient, target, config);
  const auto element = static_cast<std::int64_t>(size_of(gradient.dtype));
  const auto runs = static_cast<std::int64_t>(schedule.runs.size());
  const std::int64_t dy = runs * gradient.dy_rows(n) * gradient.block.out * element;
  std::int64_t x = 0;
  for (const std::int32_t column : gradient.layout.col())
    x += points_of_tap(problem, Operation::forward, n, column % problem.taps()) * gradient.block.in * element;
  const std::int64_t dw = gradient.layout.blocks() * gradient.block_elements() *
                          static_cast<std::int64_t>(size_of(gradient.out_dtype));
  const std::int64_t slices = slices_of(problem, target, config);
  const std::int64_t sums = 4 * gradient.block.out * std::int64_t{config.rows} * gradient.block.in;
  return static_cast<std::uint64_t>(dy + x + dw + (slices == 1 ? 0 : runs * (slices * (2 * sums + 4) + 4)));
}

/// What the passes move that transpose images: each activation once as images, and once as rows, of which
/// those of x and of dy are written to the end of their last 16 bytes.
std::uint64_t bytes_of_images(const Problem& problem, std::int64_t n) {
  if (!problem.feature_major()) return 0;
  const bool gradient = problem.operation == Operation::grad_weight;
  const bool forward = problem.operation == Operation::forward;
  const auto bytes = [&](bool inputs, bool written) {
    const std::int64_t rows = inputs ? problem.input_rows(n) : problem.output_rows(n);
    const std::int64_t row = (inputs ? problem.in_features() : problem.out_features()) *
                             static_cast<std::int64_t>(size_of(problem.dtype));
    return rows * (row + (written ? (row + 15) / 16 * 16 : row));
  };
  return static_cast<std::uint64_t>(bytes(true, forward || gradient) + bytes(false, !forward || gradient));
}

Counted count(Operation operation, const char* geometry, BlockShape block, Types types,
              const std::string& arch, const Epilogue& epilogue = {},
              ActivationOrder order = ActivationOrder::batch_major) {
  constexpr std::int64_t kImages = 2;
  const Layout layout = patterns::random(4, 4, 0.5, 3);
  const Options options = {.block = block,
                           .batch = kImages,
                           .dtype = types.dtype,
                           .operation = operation,
                           .math = types.math,
                           .order = order,
                           .epilogue = epilogue,
                           .convolution = parse_convolution(geometry),
                           .target = "emulated:" + arch};
  const DefaultLaunch made = launch_default(layout, options);
  const Problem& problem = made.problem;
  const Config& config = made.config;
  const Target& target = made.target();
  const bool runs = operation == Operation::grad_weight;
  const std::int64_t slices = runs ? slices_of(problem, target, config) : 1;
  const bool shares =
      runs ? config.rows > 1 : cuda::chunk_shape(on_rows(Spmm(problem)), target, config).blocks > 1;
  return {fmt::format("{} of '{}', {}, block {}, {} {}, '{}'", name(operation), geometry, arch,
                      to_string(block), name(types.dtype), name(types.math), to_string(config)),
          config.variant == Variant::simt,
          config.variant == Variant::halo,
          slices,
          made.resources(),
          (runs ? bytes_of_gradient : bytes_to_move)(problem, target, config, kImages) +
              bytes_of_images(problem, kImages),
          shares,
          std::visit(
              [&](const auto& computed) {
                return cuda::estimate(computed, target, config, kImages).instructions;
              },
              computed_by(problem, target)),
          made.lines};
}

const std::vector<Counted>& defaults() {
  static const std::vector<Counted> all = [] {
    std::vector<Counted> result;
    for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight})
      for (const char* const geometry :
           {"kernel=3x3 padding=1 input=10x10", "kernel=3x3 stride=2 padding=1 input=11x10"})
        for (const Types& types : {Types{DType::f16, Math::ieee}, Types{DType::bf16, Math::ieee},
                                   Types{DType::f32, Math::tf32}, Types{DType::f32, Math::ieee}})
          for (const BlockShape block : {BlockShape{16, 16}, {32, 32}})
            result.push_back(count(operation, geometry, block, types, "sm_90:4"));
    result.push_back(count(Operation::forward, "kernel=3x3x3 padding=1 input=4x6x5", {32, 32},
                           {DType::f16, Math::ieee}, "sm_75:4"));
    // Runs that many CTAs share.
    result.push_back(count(Operation::grad_weight, "kernel=3x3 padding=1 input=30x30", {32, 32},
                           {DType::f32, Math::ieee}, "sm_90:132"));
    REQUIRE(result.back().slices > 1);
    return result;
  }();
  return all;
}

/// Counts of forward products with an edge bias.
const std::vector<Counted>& with_edges() {
  static const std::vector<Counted> all = [] {
    std::vector<Counted> result;
    for (const char* const geometry :
         {"kernel=3x3 padding=1 input=10x10", "kernel=3x3 stride=2 padding=1 transposed input=6x5"})
      for (const Types& types : {Types{DType::f16, Math::ieee}, Types{DType::f32, Math::ieee}})
        for (const BlockShape block : {BlockShape{16, 16}, {32, 32}})
          result.push_back(count(Operation::forward, geometry, block, types, "sm_90:4", {.edge_bias = true}));
    return result;
  }();
  return all;
}

/// Counts of channels-first images, of even and odd numbers of points, and of any number of them.
const std::vector<Counted>& with_images() {
  static const std::vector<Counted> all = [] {
    std::vector<Counted> result;
    for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight})
      for (const char* const geometry :
           {"kernel=3x3 padding=1 input=12x12", "kernel=3x3 stride=2 padding=1 input=11x9",
            "kernel=3x3 padding=1 input=up-to:12x12"})
        for (const Types& types : {Types{DType::f16, Math::ieee}, Types{DType::f32, Math::ieee}})
          result.push_back(
              count(operation, geometry, {32, 32}, types, "sm_90:4", {}, ActivationOrder::feature_major));
    return result;
  }();
  return all;
}

}  // namespace

TEST_CASE("no default kernel of a convolution meets a bank conflict in its main loop, or spills a register") {
  for (const Counted& run : defaults()) {
    CHECK_MESSAGE(run.resources.spill_store_bytes + run.resources.stack_bytes == 0, run.what);
    for (const cuda::CountedLine& line : run.lines)
      if (DefaultLaunch::feeds(run.simt, line))
        CHECK_MESSAGE(line.shared_wavefronts == line.shared_ideal, run.what << ": " << line.instruction);
  }
}

TEST_CASE("a default kernel of a convolution moves what its schedule names: one load of x for each tap") {
  for (const Counted& run : defaults()) {
    std::uint64_t moved = 0;
    for (const cuda::CountedLine& line : run.lines) moved += line.global_bytes;
    if (run.shares) CHECK_MESSAGE(moved <= run.bytes_to_move, run.what);
    if (run.shares) CHECK_MESSAGE(2 * moved >= run.bytes_to_move, run.what);
    if (run.shares || run.halo) continue;
    CHECK_MESSAGE(moved == run.bytes_to_move,
                  run.what << ": " << moved << " bytes, " << run.bytes_to_move << " named");
  }
}

TEST_CASE(
    "the instructions that the model expects of a convolution are within 1.5 of what the emulator counts") {
  for (const Counted& run : defaults()) {
    std::uint64_t executed = 0;
    for (const cuda::CountedLine& line : run.lines) executed += line.kind == "tensor" ? 0 : line.executed;
    const double ratio = static_cast<double>(run.instructions) / static_cast<double>(executed);
    CHECK_MESSAGE(ratio > 1 / 1.5, run.what << ": " << ratio);
    CHECK_MESSAGE(ratio < 1.5, run.what << ": " << ratio);
  }
}

TEST_CASE(
    "channels-first images are transposed without bank conflicts, and each byte of them is moved once") {
  for (const Counted& run : with_images()) {
    CHECK_MESSAGE(run.resources.spill_store_bytes + run.resources.stack_bytes == 0, run.what);
    std::uint64_t moved = 0;
    std::uint64_t executed = 0;
    for (const cuda::CountedLine& line : run.lines) {
      moved += line.global_bytes;
      executed += line.kind == "tensor" ? 0 : line.executed;
      if (line.kernel.find("images") != std::string::npos)
        CHECK_MESSAGE(line.shared_wavefronts == line.shared_ideal, run.what << ": " << line.instruction);
    }
    CHECK_MESSAGE((run.shares ? moved <= run.bytes_to_move : moved == run.bytes_to_move),
                  run.what << ": " << moved << " bytes, " << run.bytes_to_move << " named");
    const double ratio = static_cast<double>(run.instructions) / static_cast<double>(executed);
    CHECK_MESSAGE(ratio > 1 / 1.5, run.what << ": " << ratio);
    CHECK_MESSAGE(ratio < 1.5, run.what << ": " << ratio);
  }
}

TEST_CASE("an edge bias spills no register, and its instructions are within 1.5 of what the model expects") {
  for (const Counted& run : with_edges()) {
    CHECK_MESSAGE(run.resources.spill_store_bytes + run.resources.stack_bytes == 0, run.what);
    std::uint64_t executed = 0;
    for (const cuda::CountedLine& line : run.lines) executed += line.kind == "tensor" ? 0 : line.executed;
    const double ratio = static_cast<double>(run.instructions) / static_cast<double>(executed);
    CHECK_MESSAGE(ratio > 1 / 1.5, run.what << ": " << ratio);
    CHECK_MESSAGE(ratio < 1.5, run.what << ": " << ratio);
  }
}

}  // namespace sparsekiln::test
