#include "compiler/cuda/simt_tuning.h"

#include <algorithm>
#include <optional>

#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/simt_shape.h"

namespace sparsekiln::cuda {
namespace {

/// 4 × 4 sums a thread where the tile is large enough for at least a warp of such threads: each operand read
/// from shared memory then serves four multiply-adds.
std::optional<Config> default_config(const Spmm& problem, const Target& target, std::int64_t n) {
  constexpr std::int32_t kSums = 16;
  constexpr std::int32_t kMostThreads = 256;
  if (!problem.ieee()) return std::nullopt;
  Config config;
  config.tile_n = tile_for(n, 8, 64);
  const std::int32_t outputs = problem.block.out * config.tile_n;
  const std::int32_t threads = std::clamp(outputs / kSums, 32, kMostThreads);
  config.warps = threads / 32;
  config.tile_out = std::min(outputs / threads, 4);
  config.stages = 2;
  config.split = 2;  // two CTAs a multiprocessor hide each other's barriers
  const SimtShape shape = simt_shape(problem, target, config);
  config.split =
      std::clamp(resident_ctas(target, shape.threads, shape.shared_bytes + kSimtFlagBytes), 1, config.split);
  return config;
}

LoopCosts loop_costs(const Spmm& problem, const Target& target, const Config& config) {
  const SimtShape shape = simt_shape(problem, target, config);
  const std::int32_t quads = shape.chunk / 4;
  const std::int32_t sums = shape.thread_n * config.tile_out;  // of one output tile
  const std::int32_t tiles = config.rows * problem.weights();
  const std::int32_t passes_x = ceil_div(quads * config.tile_n, shape.threads);
  const std::int32_t passes_w = ceil_div(quads * problem.block.out, shape.threads);
  const double warps = config.warps;

  LoopCosts costs;
  costs.threads = shape.threads;
  costs.registers = std::min(kMostRegisters, sums * tiles + 40);
  costs.shared_bytes = shape.shared_bytes + kSimtFlagBytes;
  costs.shape.parts = problem.block.in / shape.chunk;
  costs.chunk_fmas = std::int64_t{shape.chunk} * problem.block.out * config.tile_n;
  costs.chunk_shared_bytes = std::int64_t{4} * shape.chunk * (config.tile_n + problem.block.out) +
                             std::int64_t{512} * config.warps * quads * (shape.thread_n + config.tile_out);
  costs.begin = warps * 82;
  costs.chunk = warps * (28.5 + if_it(tiles > 1, 14) + if_it(problem.by_columns(), 4) +
                         (13 + gate_costs(problem)) * passes_w +
                         quads * (4.0 * sums + 4.3 * shape.thread_n + 3.4 * config.tile_out + 0.8));
  costs.load = warps * passes_x * (15.3 + activation_costs(problem));
  costs.entries =
      warps * sums * (9.4 * tiles + value_costs(problem) * config.rows) * kEntries / config.tile_n;
  costs.part = warps * 134;
  return costs;
}

}  // namespace

const SpmmTuning kSpmmSimtTuning{
    {.variant = Variant::simt,
     .axes = {.tile_n = {8, 16, 32, 64, 128},
              .tile_out = {1, 2, 4, 8},
              .stages = {1, 2, 3},
              .warps = {2, 4, 8},
              .split = {1, 2, 4},
              .tiles = {{1, 1}},
              .table = {TableForm::constant, TableForm::global, TableForm::unrolled},
              .operand_a = {OperandA::x}},
     .rejection = rejects_all_but_ieee<Spmm>,
     .default_config = default_config},
    loop_costs};

}  // namespace sparsekiln::cuda
