#include "compiler/cuda/simt_tuning.h"

#include <algorithm>

#include "compiler/cuda/simt_shape.h"
#include "compiler/cuda/types.h"

namespace sparsekiln::cuda {
namespace {

LoopCosts loop_costs(const Spmm& problem, const Target& target, const Config& config) {
  const SimtShape shape = simt_shape(problem, target, config);
  const std::int32_t quads = shape.chunk / 4;
  const std::int32_t sums = shape.thread_n * config.tile_out;  // of one output tile
  const std::int32_t tiles = config.rows * problem.weights();
  const std::int32_t passes_x = ceil_div(quads * config.tile_n, shape.threads);
  const std::int32_t passes_w = ceil_div(quads * problem.block.out, shape.threads);
  const double warps = config.warps;
  // Four k's of a batch row, or of an output, are read at once where they are next to each other, or next to
  // those of three other outputs.
  const double reads_x = problem.feature_major() ? 8 : 2;
  const double reads_w = problem.by_columns() && config.tile_out % 4 != 0 ? 8 : 2;
  const bool whole = problem.has_whole_tiles(config.tile_n);

  LoopCosts costs;
  costs.threads = shape.threads;
  costs.registers = std::min(kMostRegisters, sums * tiles + 40);
  costs.shared_bytes = shape.shared_bytes + kSimtFlagBytes;
  costs.shape.parts = problem.block.in / shape.chunk;
  costs.shape.weights = problem.weights();
  costs.chunk_fmas = std::int64_t{shape.chunk} * problem.block.out * config.tile_n;
  costs.chunk_shared_bytes = std::int64_t{4} * shape.chunk * (config.tile_n + problem.block.out) +
                             std::int64_t{512} * config.warps * quads * (shape.thread_n + config.tile_out);
  costs.begin = warps * 101;
  costs.chunk = warps * (23.2 + if_it(tiles > 1, 21.6) + (5 + block_scale_costs(problem)) * passes_w +
                         quads * (4.0 * sums + reads_x * shape.thread_n + reads_w * config.tile_out + 0.2));
  costs.load = warps * passes_x * (2.7 + if_it(!whole, 2.7) + activation_costs(problem));
  costs.entries =
      warps * sums * (9.4 * tiles + value_costs(problem) * config.rows) * kEntries / config.tile_n;
  costs.part = warps * (32 + 1.6 * sums * tiles);
  // Fitted where the same work took 1.3 times as many instructions, 1.02 cycles each.
  costs.waits = {.chunk = 0.0227, .kilobyte = 0.0038, .instruction = 1.3};
  add_lattice_costs(costs, problem, {.passes = passes_x, .registers = 13, .rows = shape.thread_n});
  return costs;
}

const char* rejection(const Spmm& problem, const Target& target, const Config& config) {
  if (!on_cuda_cores(problem, target)) return kOtherArithmetic;
  if (!simt_shares_out(problem, config)) return "threads do not share out the tile evenly";
  return nullptr;
}

/// Where there is no asynchronous copy, what a chunk brings passes through registers: too many of a single
/// warp. What the cell of an LSTM reads for its outputs spills beside many sums (ptxas 13.0).
bool keeps_costs(const Spmm& problem, const Target& target, const Config& config, const LoopCosts& costs) {
  const bool held = !simt_shape(problem, target, config).async_copy && config.warps == 1;
  const std::int32_t most = problem.operation == Operation::forward ? 160 : 100;  // registers
  const bool crowded = problem.epilogue.lstm && (config.tile_out > 4 || costs.registers > most);
  return has_registers(problem, target, config, costs) && !held && !crowded;
}

}  // namespace

const SpmmTuning kSpmmSimtTuning{
    {.variant = Variant::simt,
     .axes = {.tile_n = {8, 16, 32, 64, 128},
              .tile_out = {1, 2, 4, 8},
              .stages = {1, 2, 3},
              .warps = {1, 2, 4, 8},
              .split = {1, 2, 4, 8},
              .tiles = {{1, 1}, {2, 1}},
              .table = {TableForm::constant, TableForm::global, TableForm::unrolled},
              .operand_a = {OperandA::x}},
     .rejection = rejection,
     .default_axes = {.tile_n = {8, 16, 32, 64, 128},
                      .tile_out = {1, 2, 4, 8},
                      .stages = {3, 2},
                      .warps = {1, 2, 4, 8},
                      .split = {1, 2, 4, 8},
                      .tiles = {{1, 1}, {2, 1}},
                      .table = {TableForm::global},
                      .operand_a = {OperandA::x}}},
    loop_costs,
    keeps_costs};

}  // namespace sparsekiln::cuda
