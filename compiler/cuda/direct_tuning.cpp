#include "compiler/cuda/direct_tuning.h"

#include <algorithm>

#include "compiler/cuda/direct_shape.h"
#include "compiler/cuda/small_batch.h"
#include "compiler/element.h"

// No GPU has run these kernels. Their waits were chosen by what an H100 took for kernels of the same
// structure that are not of this project; the rest is counted as for the other families.

namespace sparsekiln::cuda {
namespace {

/// Fitted to what an H100 took for loads of pieces of 16 and of 32 bytes
/// (bench/measured/h100-2026-11-27.structures.json); its copy engine brought as much from L2.
constexpr double kCacheBytes = 37;

LoopCosts loop_costs(const Spmm& problem, const Target& target, const Config& config) {
  const DirectShape shape = direct_shape(problem, target, config);
  const std::int32_t units_x = config.tile_n / 8;
  const std::int32_t outputs = warp_outputs(problem, config);
  const std::int32_t units_w = outputs / 8;
  const std::int32_t tiles = outputs * config.tile_n / 128;
  const double warps = config.warps;
  const double gathered = gathered_outputs(problem, config);
  const double met = warps * outputs / problem.block.out;  // sums for each, of all weights

  LoopCosts costs;
  costs.threads = shape.threads;
  costs.cache_bytes = kCacheBytes;
  costs.chunk_per_warp = true;
  costs.registers = std::min(kMostRegisters, shape.registers);
  costs.shared_bytes = shape.shared_bytes + kWarpStaticShared;
  costs.shape = shape.chunk;
  costs.chunk_products = std::int64_t{2} * tiles * halves(target, problem.dtype);
  // By columns, a load has words of up to four units, and each word of 16 bits is transposed.
  const bool columns = problem.by_columns();
  const bool words = problem.dtype == DType::f32;
  const bool derives = problem.derivative != Activation::none;
  const double blocks = shape.chunk.blocks;
  const double loads_x = (derives ? 2.0 : 1.0) * units_x;
  const double loads_w = columns ? 4.0 * ceil_div(units_w, 4) / blocks : units_w;
  // At the ends of items, loads are predicated, and what they lack is cleared.
  const double load = blocks * (10 + (has_panels(config) ? 3.0 : 6.0) * loads_x + 3.0 * loads_w);
  const double cleared = 4.0 * (loads_x + units_w);
  costs.begin = warps * ((columns ? 90 : 105) + config.stages * (load + cleared));
  // A warp has a chunk of its own.
  costs.chunk = blocks * (12.5 + 3 * loads_x + 1.8 * loads_w) + if_it(config.stages == 1, 3.6);
  const bool weight_a = config.operand_a == OperandA::w;
  costs.chunk += if_it(words, 13.5 * (weight_a ? units_w : units_x) + 5.8 * (weight_a ? units_x : units_w));
  costs.chunk += if_it(columns && !words, 4.6 * units_w) + if_it(columns && blocks > 1, 11 * blocks);
  // Sums of 8-bit floats are added by CUDA cores.
  costs.chunk += if_it(is_float8(problem.dtype), 2 * 4.0 * tiles) + block_scale_costs(problem) * units_w;
  costs.chunk += if_it(derives, activation_costs(problem) * units_x);
  costs.item = warps * (85 + if_it(blocks > 1 && !columns, 24) + (weight_a ? 3.3 : 2.2) * shape.sums) +
               2.7 * gathered * met / std::min(shape.run, 4);
  costs.entries = gathered * (1 + value_costs(problem)) * kEntries / config.tile_n;
  costs.part = warps * 38;
  // The chunks of a warp come in a round trip to memory, together as many as are under way.
  costs.waits = {.latency = 0,
                 .chunk = 0.55 / config.stages,
                 .instruction = 0.8,
                 .item = 0.1,
                 .launch = 1.9,
                 .overlap_lost = 0.05};
  return costs;
}

/// Warps of a multiprocessor, of all its CTAs: with fewer nothing is known of such kernels.
constexpr std::int32_t kLeastWarps = 12;

const char* rejection(const Spmm& problem, const Target& target, const Config& config) {
  if (problem.ieee()) return kOtherArithmetic;
  if (const char* const why = warp_rejection(problem, target, config); why != nullptr) return why;
  if (config.warps * config.split < kLeastWarps)
    return "fewer than twelve warps of a multiprocessor do not hide what each of them waits for";
  if (has_panels(config) && problem.derivative != Activation::none) return "panels hold x, not z";
  if (has_panels(config) && problem.correlation) return "panels are of the batch rows of a linear layer";
  if (has_panels(config) && warp_chunk(problem, config).blocks == 1)
    return "a block has 64 bytes of a row of x: it needs no panel";
  if (config.stages == 1 && config.tile_n > 8) {  // else x is little beside W
    Config ahead = config;
    ahead.stages = 2;
    if (direct_fits(problem, target, ahead)) return "there are registers for another chunk under way";
  }
  if (!direct_fits(problem, target, config)) return "CTAs have neither the registers nor the shared memory";
  return nullptr;
}

/// Few enough to choose a default among them.
constexpr SearchAxes kAxes{.tile_n = {8, 16, 32, 64},
                           .tile_out = {0, 16, 32},
                           .stages = {1, 2},
                           .warps = {4, 8, 16},
                           .split = {1, 2, 3, 4, 6},
                           .tiles = {{1, 1}},
                           .table = {TableForm::global},
                           .operand_a = {OperandA::x, OperandA::w},
                           .knobs = {{0}, {1}}};

}  // namespace

// For each tile of batch rows the weight is read again.
const SpmmTuning kSpmmDirectTuning{{.variant = Variant::direct,
                                    .axes = kAxes,
                                    .rejection = rejection,
                                    .default_axes = kAxes,
                                    .most_batch = 128},
                                   loop_costs,
                                   nullptr,  // direct_fits has counted registers
                                   true};

}  // namespace sparsekiln::cuda
