#include "compiler/cuda/stream_tuning.h"

#include <algorithm>

#include "compiler/cuda/small_batch.h"
#include "compiler/cuda/stream_shape.h"
#include "compiler/element.h"

namespace sparsekiln::cuda {
namespace {

LoopCosts loop_costs(const Spmm& problem, const Target& target, const Config& config) {
  const StreamShape shape = stream_shape(problem, target, config);
  const std::int32_t units_x = config.tile_n / 8;
  const std::int32_t outputs = warp_outputs(problem, config);
  const std::int32_t units_w = outputs / 8;
  const std::int32_t tiles = outputs * config.tile_n / 128;
  const double warps = config.warps;
  const double gathered = gathered_outputs(problem, config);
  const double met = warps * outputs / problem.block.out;  // sums for each, of all weights

  LoopCosts costs;
  costs.threads = shape.threads;
  costs.chunk_per_warp = true;
  costs.registers = std::min(kMostRegisters, stream_registers(problem, target, config));
  costs.shared_bytes = shape.shared_bytes + kWarpStaticShared;
  costs.shape = shape.chunk;
  costs.chunk_products = shape.tensor_cores ? std::int64_t{2} * tiles * halves(target, problem.dtype) : 0;
  if (!shape.tensor_cores) costs.chunk_fmas = std::int64_t{kWarpChunkBytes / 4} * outputs * config.tile_n;
  costs.chunk_shared_bytes = std::int64_t{2} * kWarpChunkBytes * (config.tile_n + outputs);
  costs.begin = warps * (123 + 0.7 * (config.stages - 1) * (units_x + units_w));
  // A warp has a chunk of its own.
  costs.chunk = 34.5 + if_it(shape.chunk.blocks > 1, 10) + 10 * units_x + 3.6 * units_w;
  costs.chunk += if_it(is_float8(problem.dtype), 2 * 4.0 * tiles);
  costs.chunk += shape.tensor_cores ? if_it(problem.dtype == DType::f32, 7.0 * (units_x + units_w))
                                    : 4.0 * units_w * config.tile_n;
  costs.item =
      warps * (shape.tensor_cores ? 3.3 : 14.3) * shape.sums + 2.7 * gathered * met / std::min(shape.run, 4);
  costs.entries = gathered * (1 + value_costs(problem)) * kEntries / config.tile_n;
  costs.part = warps * 38;
  costs.waits = {.chunk = 0.107, .kilobyte = 0.0313, .instruction = 1.02};
  return costs;
}

const char* rejection(const Spmm& problem, const Target& target, const Config& config) {
  if (const char* const why = warp_rejection(problem, target, config); why != nullptr) return why;
  if (problem.epilogue.lstm) return "what registers the cells of an LSTM take beside a ring is not known";
  if (!stream_fits(problem, target, config)) return "a CTA has neither the registers nor the shared memory";
  return nullptr;
}

}  // namespace

const SpmmTuning kSpmmStreamTuning{{.variant = Variant::stream,
                                    .axes = {.tile_n = {8, 16},
                                             .tile_out = {0},
                                             .stages = {2, 3, 4, 6, 8},
                                             .warps = {2, 4, 8, 16},
                                             .split = {1, 2},
                                             .tiles = {{1, 1}},
                                             .table = {TableForm::global},
                                             .operand_a = {OperandA::x, OperandA::w}},
                                    .rejection = rejection,
                                    .default_axes = {.tile_n = {8, 16},
                                                     .tile_out = {0},
                                                     .stages = {4, 8, 2},
                                                     .warps = {4, 8, 16},
                                                     .split = {1, 2},
                                                     .tiles = {{1, 1}},
                                                     .table = {TableForm::global},
                                                     .operand_a = {OperandA::x, OperandA::w}}},
                                   loop_costs,
                                   has_registers};

}  // namespace sparsekiln::cuda
