#include "compiler/cuda/halo_tuning.h"

#include <algorithm>

#include "compiler/cuda/halo_shape.h"
#include "compiler/cuda/wgmma_shape.h"

namespace sparsekiln::cuda {
namespace {

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
  costs.loaded_of_one =
      loaded_of_one(*problem.correlation, problem.convolution, problem.by_columns(), config.tile_n);
  const std::int32_t boxes = problem.block.in / kHaloLine;
  costs.chunk = 4 * groups * (54.6 + 17 * (boxes - 1)) + 154;  // and of the warps that produce
  costs.item = kWarps * (258 + (3.84 + if_it(problem.by_columns(), 0.73)) * config.tile_n);
  costs.entries = kWarps * 4 * value_costs(problem);
  costs.part = kWarps * 0.24 * config.tile_n;
  // Steps of either tile, and stages of x, are under way at the same time: what is left of the wait for each.
  constexpr double kLatency = 0.535;
  const double ahead_w = config.rows * (shape.stages_w - 1);
  const Convolution::Extents& classes = problem.correlation->out_step;
  const double steps_of_stage = std::max(1.0, 1.0 * shape.chunk.columns / (classes[1] * classes[2]));
  const double ahead_x = (config.stages - 1) * steps_of_stage;
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
