#include "compiler/cuda/halo_tuning.h"

#include <algorithm>

#include "compiler/cuda/halo_shape.h"
#include "compiler/cuda/wgmma_shape.h"

namespace sparsekiln::cuda {
namespace {

/// Positions of an image that the tiles of one dimension load along it: each its own and what taps reach, as
/// far as it is in the image.
std::int64_t loaded_along(std::int32_t points, std::int32_t input, std::int32_t tile, std::int32_t first,
                          std::int32_t box) {
  std::int64_t loaded = 0;
  for (std::int32_t at = 0; at < points; at += tile)
    loaded += std::max(std::min(at + first + box, input) - std::max(at + first, 0), 0);
  return loaded;
}

/// Rows of x of an image that a load of all its tiles brings: the mean of those for each depth of the kernel.
double loaded_of_one(const Spmm& problem, const Config& config, const HaloShape& shape) {
  const Correlation& lattice = *problem.correlation;
  const Convolution& convolution = problem.convolution;
  const std::int32_t height = config.tile_n / kHaloTileWidth;
  std::int64_t planes = 0;
  for (std::int32_t tap = 0; tap < convolution.kernel[0]; ++tap)
    planes += loaded_along(lattice.points[0], lattice.input[0], 1,
                           shape.first[0] + tap * convolution.dilation[0], 1);
  return static_cast<double>(
             planes *
             loaded_along(lattice.points[1], lattice.input[1], height, shape.first[1], shape.box[1]) *
             loaded_along(lattice.points[2], lattice.input[2], kHaloTileWidth, shape.first[2],
                          shape.box[2])) /
         convolution.kernel[0];
}

LoopCosts loop_costs(const Spmm& problem, const Target& target, const Config& config) {
  constexpr double kWarps = 8;  // that multiply
  constexpr std::int64_t kStepBytes = 32;
  const HaloShape shape = halo_shape(problem, target, config);
  const std::int32_t groups = 2 / config.rows;  // warpgroups that multiply a step
  const std::int32_t steps = problem.block.in / 16;
  LoopCosts costs;
  costs.threads = shape.threads;
  costs.registers = 168;  // the mean: 40 of the producer's threads, 232 of the others
  costs.shared_bytes = shape.shared_bytes + kWgmmaStaticShared;
  costs.full_rate = true;
  costs.copies_lines = true;
  costs.shape = shape.chunk;
  costs.product_tiles = config.tile_n / 8;
  costs.chunk_products = std::int64_t{4} * groups * steps;  // of the four warps of each
  costs.chunk_shared_bytes = shape.bytes_w + groups * steps * kStepBytes * (64 + config.tile_n);
  costs.load_shared_bytes = shape.bytes_x;
  costs.loaded_of_one = loaded_of_one(problem, config, shape);
  const std::int32_t boxes = problem.block.in / kHaloLine;
  costs.chunk = 4 * groups * (54.6 + 17 * (boxes - 1)) + 154;  // and of the warps that produce
  costs.item = kWarps * (258 + (3.84 + if_it(problem.by_columns(), 0.73)) * config.tile_n);
  costs.entries = kWarps * 4 * value_costs(problem);
  costs.part = kWarps * 0.24 * config.tile_n;
  // Steps of either tile, and stages of x, are under way at the same time: what is left of the wait for each.
  constexpr double kLatency = 0.535;
  const double ahead_w = config.rows * (shape.stages_w - 1);
  const double ahead_x = (config.stages - 1) * shape.chunk.columns;
  // Fitted to what the structure took of an H100 (bench/measured/h100-2026-11-27.structures.json), of which
  // no kernel here has run on one. What a further CTA waits for, whose stages are empty, is an estimate.
  costs.waits = {
      .latency = kLatency * (config.stages - 1) / std::min(ahead_w, ahead_x), .wave = 1.5, .launch = 4};
  return costs;
}

const char* rejection(const Spmm& problem, const Target& target, const Config&) {
  if (problem.ieee()) return kOtherArithmetic;
  if (!problem.gathers()) return "halo is for convolutions";
  return target.compute_capability() == 90 ? nullptr : "halo is for sm_90";
}

}  // namespace

const SpmmTuning kSpmmHaloTuning{{.variant = Variant::halo,
                                  .axes = {.tile_n = {64, 112, 128, 192, 224, 256},
                                           .tile_out = {0},
                                           .stages = {2, 3, 4},
                                           .warps = {kWgmmaWarps},
                                           .split = {1},
                                           .tiles = {{2, 2}, {2, 1}, {1, 4}, {1, 2}, {1, 1}},
                                           .table = {TableForm::constant, TableForm::global},
                                           .operand_a = {OperandA::x}},
                                  .rejection = rejection,
                                  .default_axes = {.tile_n = {112, 128, 224, 256},
                                                   .tile_out = {0},
                                                   .stages = {2, 3},
                                                   .warps = {kWgmmaWarps},
                                                   .split = {1},
                                                   .tiles = {{2, 2}, {2, 1}, {1, 4}, {1, 2}, {1, 1}},
                                                   .table = {TableForm::global},
                                                   .operand_a = {OperandA::x}}},
                                 loop_costs};

}  // namespace sparsekiln::cuda
