#include "compiler/cuda/wgmma_rows_tuning.h"

#include "compiler/cuda/wgmma_rows_shape.h"
#include "compiler/cuda/wgmma_shape.h"
#include "compiler/cuda/wgmma_tuning.h"

namespace sparsekiln::cuda {
namespace {

LoopCosts loop_costs(const Spmm& problem, const Target& target, const Config& config) {
  constexpr double kWarps = 4;  // of a warpgroup
  const WgmmaRowsShape shape = wgmma_rows_shape(problem, target, config);
  const std::int32_t steps = problem.block.in / 16;
  const double sums = config.tile_n / 2.0;  // of a thread
  LoopCosts costs;
  costs.threads = shape.threads;
  costs.registers = config.rows == 2 ? 168 : 128;  // the mean
  costs.shared_bytes = shape.shared_bytes + kWgmmaStaticShared;
  costs.full_rate = true;
  costs.copies_lines = true;
  costs.shape = shape.chunk;
  costs.product_tiles = shape.columns / 8;
  costs.chunk_products = std::int64_t{4} * steps * (config.tile_n / shape.columns);  // of the four warps
  costs.chunk_shared_bytes =
      std::int64_t{shape.line_bytes / shape.chunk.columns} * (2 * kRowsTile + config.tile_n);
  costs.begin = 40.0 * config.warps;
  // The warpgroup that multiplies it, and the warp that produces, each have some.
  costs.chunk = kWarps * (104 + 5.0 * steps * (config.tile_n / shape.columns));
  costs.item = config.rows * kWarps * 1.2 * sums;
  costs.entries = config.rows * kWarps * sums * (6 + value_costs(problem)) * kEntries / config.tile_n;
  costs.waits = wgmma_waits(problem.by_columns(), config,
                            std::int64_t{shape.stages_x - 1} * config.tile_n * shape.line_bytes);
  // While a warpgroup ends its item, the others go on. Fitted to prototypes of two warpgroups without
  // clusters, which an H100 ran (bench/measured/h100-2026-11-27.structures.json): what three gain is an
  // extrapolation.
  costs.waits.item /= 2 * config.rows;
  costs.waits.launch = 10;
  return costs;
}

const char* rejection(const Spmm& problem, const Target& target, const Config& config) {
  if (problem.ieee()) return kOtherArithmetic;
  if (config.warps != 4 * (config.rows + 1) || config.merge * problem.block.out != kRowsTile)
    return "warps follow from rows, and merge from the blocks";
  return target.compute_capability() == 90 ? nullptr : "wgmma is for sm_90";
}

}  // namespace

const SpmmTuning kSpmmWgmmaRowsTuning{
    {.variant = Variant::wgmma_rows,
     .axes = {.tile_n = {128, 256},
              .tile_out = {0},
              .stages = {3, 4, 5, 6, 8},
              .warps = {12, 16},
              .split = {1},
              .tiles = {{2, 1}, {3, 1}, {2, 2}, {3, 2}, {2, 4}, {3, 4}},
              .table = {TableForm::constant, TableForm::global},
              .operand_a = {OperandA::w},
              .clusters = {{1, 1}, {2, 1}}},
     .rejection = rejection,
     .default_axes = {.tile_n = {128, 256},
                      .tile_out = {0},
                      .stages = {4, 5, 6, 8},
                      .warps = {12, 16},
                      .split = {1},
                      .tiles = {{2, 1}, {3, 1}, {2, 2}, {3, 2}, {2, 4}, {3, 4}},
                      .table = {TableForm::global},
                      .operand_a = {OperandA::w},
                      .clusters = {{1, 1}, {2, 1}}},
     .least_batch = 128},
    loop_costs};

}  // namespace sparsekiln::cuda
