#include "compiler/cuda/wgmma_tuning.h"

#include <algorithm>

#include "compiler/cuda/wgmma_shape.h"

namespace sparsekiln::cuda {
namespace {

LoopCosts loop_costs(const Spmm& problem, const Target& target, const Config& config) {
  constexpr double kWarps = 8;  // that multiply
  const WgmmaShape shape = wgmma_shape(problem, target, config);
  const std::int32_t outputs = problem.block.out * config.merge;
  const std::int32_t subtiles = config.tile_n / 64;
  const std::int32_t steps = shape.line_bytes / 32;
  LoopCosts costs;
  costs.threads = shape.threads;
  costs.registers = 168;  // the mean: 40 of the producer's threads, 232 of the others
  costs.shared_bytes = shape.shared_bytes + kWgmmaStaticShared;
  costs.full_rate = true;
  costs.copies_lines = true;
  costs.shape = shape.chunk;
  costs.product_tiles = outputs / 8;
  costs.chunk_products = std::int64_t{4} * subtiles * steps;  // of the four warps of a subtile
  costs.chunk_shared_bytes = std::int64_t{shape.line_bytes} * (config.tile_n + outputs) +
                             std::int64_t{subtiles} * shape.line_bytes * (64 + outputs);
  costs.begin = kWgmmaWarps * 98;
  // Descriptors of each subtile of a warpgroup; where there are several tiles, which one a chunk is of.
  costs.chunk = kWarps * (61 + 17.0 * subtiles * steps / 8 +
                          if_it(config.rows * config.cluster_rows > 1, 19) + shape.products);
  costs.item = kWarps * 1.6 * shape.sums;
  // By columns, lanes exchange values; ints are converted, or moved to where floats are.
  const double stored = if_it(problem.out_dtype != DType::f32, 0.9) + if_it(problem.by_columns(), 3.7) +
                        if_it(problem.dtype == DType::i8, 1);
  costs.entries =
      kWarps * shape.sums * (stored + value_costs(problem) / problem.weights()) * kEntries / config.tile_n;
  costs.part = kWarps * (31 + 1.4 * shape.sums);
  costs.waits = wgmma_waits(problem.by_columns(), config,
                            std::int64_t{shape.stages_x - 1} * config.tile_n * shape.line_bytes);
  return costs;
}

const char* rejection(const Spmm& problem, const Target& target, const Config&) {
  if (problem.ieee()) return kOtherArithmetic;
  return target.compute_capability() == 90 ? nullptr : "wgmma is for sm_90";
}

}  // namespace

// Fitted to the configs of bench/measured/h100-2026-11-27.jsonl, of both directions apart. Every gradient
// that was measured had its rows split, whose sums cost more than the rest, so that less is known of it.
Waits wgmma_waits(bool by_columns, const Config& config, std::int64_t ahead) {
  const double clustered = if_it(config.cluster > 1, 1);  // later where both CTAs must have room
  if (by_columns) return {.latency = 0.535 + 0.299 * clustered, .round = 5};
  // The more is under way, the more evenly everything is used.
  constexpr double kTile = 256 * 128;  // bytes
  return {.latency = 0.27 + 0.15 * clustered,
          .round = 5,
          .item = 0.18,
          .overlap_lost = 0.142 + 0.116 * kTile / static_cast<double>(ahead)};
}

// A GPU may hold fewer clusters of four at a time than it has multiprocessors for: an H100 held 30 where
// 33 would fill it, and a launch of 32 took two rounds. So none is a default.
const SpmmTuning kSpmmWgmmaTuning{{.variant = Variant::wgmma,
                                   .axes = {.tile_n = {128, 256},
                                            .tile_out = {0},
                                            .stages = {3, 4, 5, 6},
                                            .warps = {kWgmmaWarps},
                                            .split = {1},
                                            .tiles = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {1, 4}},
                                            .table = {TableForm::constant, TableForm::global},
                                            .operand_a = {OperandA::x},
                                            .clusters = {{1, 1}, {2, 1}, {1, 2}, {2, 2}}},
                                   .rejection = rejection,
                                   .default_axes = {.tile_n = {128, 256},
                                                    .tile_out = {0},
                                                    .stages = {3, 4, 5, 6},
                                                    .warps = {kWgmmaWarps},
                                                    .split = {1},
                                                    .tiles = {{1, 1}, {2, 1}},
                                                    .table = {TableForm::global},
                                                    .operand_a = {OperandA::x},
                                                    .clusters = {{1, 1}, {2, 1}, {1, 2}}}},
                                  loop_costs};

}  // namespace sparsekiln::cuda
