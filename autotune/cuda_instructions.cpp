#include "autotune/cuda_instructions.h"

#include <algorithm>

#include "compiler/cuda/mma_shape.h"
#include "compiler/cuda/simt_shape.h"
#include "compiler/cuda/stream_shape.h"
#include "compiler/cuda/weight_gradient_shape.h"

namespace sparsekiln::cuda {
namespace {

std::int32_t quotient_up(std::int32_t value, std::int32_t divisor) { return (value + divisor - 1) / divisor; }

LoopCosts mma_costs(const Spmm& problem, const Target& target, const Config& config) {
  const MmaShape shape = mma_shape(problem, target, config);
  const bool weight_a = config.operand_a == OperandA::w;
  const std::int32_t outputs = problem.block.out * config.merge;
  const std::int32_t warps = config.warps;
  const std::int32_t a = weight_a ? outputs / (16 * shape.warps_out) : config.tile_n / (16 * shape.warps_n);
  const std::int32_t b = weight_a ? config.tile_n / (8 * shape.warps_n) : outputs / (8 * shape.warps_out);
  const std::int32_t steps = shape.chunk_units / 2;
  const bool floats = problem.dtype == DType::f32;
  LoopCosts costs;
  costs.threads = shape.threads;
  costs.cta_shared_bytes = shape.shared_bytes + kMmaStaticShared;
  costs.registers = std::min(255, shape.sums + 4 * a + 2 * b + 56);
  costs.stage_bytes = std::int64_t{16} * shape.chunk_units * (config.tile_n + outputs);
  costs.shape = shape.chunk;
  // Where m16n8k16 is not there, two of half the depth.
  const std::int32_t halves = target.compute_capability() < 80 && !floats ? 2 : 1;
  costs.chunk_products = std::int64_t{warps} * a * b * steps * halves;
  costs.chunk_shared_bytes = costs.stage_bytes + std::int64_t{warps} * steps * (512 * a + 256 * b);
  const std::int32_t loads = steps * (a + quotient_up(b, 2));
  const std::int32_t converts = floats ? steps * (4 * a + 2 * b) : 0;
  const std::int32_t passes = quotient_up(config.tile_n * shape.chunk_units, shape.threads) +
                              quotient_up(outputs * shape.chunk_units, shape.threads);
  costs.chunk = warps * (40.0 + loads + converts + 3.0 * passes);
  const std::int32_t sums = a * b * 4;
  costs.item = warps * (15.0 + sums);
  costs.store = warps * (20.0 + 2.0 * sums);
  costs.part = warps * (40.0 + 3.0 * sums);
  costs.begin = warps * (120.0 + config.stages * (30.0 + 3.0 * passes));
  return costs;
}

LoopCosts stream_costs(const Spmm& problem, const Target& target, const Config& config) {
  const StreamShape shape = stream_shape(problem, target, config);
  const std::int32_t units = (config.tile_n + problem.block.out) / 8;
  LoopCosts costs;
  costs.threads = shape.threads;
  costs.cta_shared_bytes = shape.shared_bytes + kStreamStaticShared;
  costs.registers = std::min(255, stream_registers(problem, target, config));
  costs.stage_bytes = std::int64_t{kStreamChunkBytes} * (config.tile_n + problem.block.out);
  costs.shape = shape.chunk;
  const std::int32_t tiles = problem.block.out * config.tile_n / 128;
  const std::int32_t halves = target.compute_capability() < 80 && problem.dtype != DType::f32 ? 4 : 2;
  costs.chunk_products = shape.tensor_cores ? std::int64_t{tiles} * halves : 0;
  costs.chunk_shared_bytes = 2 * costs.stage_bytes;
  // A warp has a chunk of its own.
  costs.chunk = 40.0 + 3.0 * units;
  costs.chunk += shape.tensor_cores ? (problem.dtype == DType::f32 ? 4.0 * units : 0.0)
                                    : 4.0 * problem.block.out / 8 * config.tile_n;
  costs.item = config.warps * (30.0 + 2.0 * shape.sums);
  costs.store = config.warps * (30.0 + shape.sums);
  costs.part = config.warps * (40.0 + 3.0 * shape.sums);
  costs.begin = config.warps * (120.0 + config.stages * (20.0 + 2.0 * units));
  return costs;
}

LoopCosts simt_costs(const Spmm& problem, const Target& target, const Config& config) {
  const SimtShape shape = simt_shape(problem, target, config);
  const std::int32_t warps = config.warps;
  LoopCosts costs;
  costs.threads = shape.threads;
  costs.cta_shared_bytes = shape.shared_bytes + kSimtFlagBytes;
  const std::int32_t sums = shape.thread_n * config.tile_out;
  costs.registers = std::min(255, sums * config.rows * problem.weights() + 40);
  costs.stage_bytes = std::int64_t{4} * shape.chunk * (config.tile_n + problem.block.out);
  const std::int32_t passes = quotient_up(shape.chunk / 4 * config.tile_n, shape.threads) +
                              quotient_up(shape.chunk / 4 * problem.block.out, shape.threads);
  const std::int32_t quads = shape.chunk / 4;
  costs.shape.parts = problem.block.in / shape.chunk;
  costs.chunk = warps * (40.0 + 8.0 * passes + quads * (4.0 * sums + shape.thread_n + config.tile_out));
  costs.chunk_shared_bytes =
      costs.stage_bytes + std::int64_t{512} * warps * quads * (shape.thread_n + config.tile_out);
  costs.item = warps * (15.0 + sums);
  costs.store = warps * (20.0 + 4.0 * sums);
  costs.part = warps * (40.0 + 3.0 * sums);
  costs.begin = warps * (120.0 + config.stages * (30.0 + 8.0 * passes));
  return costs;
}

}  // namespace

LoopCosts loop_costs(const Spmm& problem, const Target& target, const Config& config, std::int64_t) {
  LoopCosts costs = config.variant == Variant::mma      ? mma_costs(problem, target, config)
                    : config.variant == Variant::stream ? stream_costs(problem, target, config)
                                                        : simt_costs(problem, target, config);
  costs.shape.weights = problem.weights();
  return costs;
}

GradientCosts loop_costs(const Sddmm& gradient, const Target& target, const Config& config) {
  const WeightGradientShape shape = weight_gradient_shape(gradient, target, config);
  const auto element = static_cast<std::int32_t>(size_of(gradient.dtype));
  const std::int32_t columns = config.rows * gradient.block.in;
  const std::int32_t units = 16 / element;
  const std::int32_t passes = quotient_up(config.tile_n * gradient.block.out / units, shape.threads) +
                              quotient_up(config.tile_n * columns / units, shape.threads);
  GradientCosts costs;
  costs.threads = shape.threads;
  costs.cta_shared_bytes = shape.shared_bytes + kWeightGradientStaticShared;
  costs.registers = std::min(255, shape.sums + 64);
  costs.stage_bytes = std::int64_t{config.tile_n} * (gradient.block.out + columns) * element;
  costs.warps_in = shape.warps_in;
  double loop = 0;  // of a warp
  if (config.variant == Variant::mma) {
    const std::int32_t a = std::max(gradient.block.out / (16 * shape.warps_out), 1);
    const std::int32_t b = columns / (8 * shape.warps_in);
    const std::int32_t steps = config.tile_n * element / 32 / shape.warps_n;
    const std::int32_t halves = target.compute_capability() < 80 && element == 2 ? 2 : 1;
    costs.chunk_products = std::int64_t{shape.warps_out} * shape.warps_n * a * b * steps * halves;
    costs.chunk_shared_bytes = std::int64_t{shape.warps_out} * shape.warps_n * steps * (512 * a + 256 * b);
    loop = element == 2 ? steps * (2.0 * a + quotient_up(b, 2) * 2.0) : steps * (10.0 * a + 5.0 * b);
  } else {
    const std::int32_t threads = gradient.block.out * columns / shape.sums;
    const double entries = static_cast<double>(config.tile_n) * threads / shape.threads;
    loop = entries * (shape.sums + config.tile_out / 2.0 + 2);
    costs.chunk_shared_bytes = static_cast<std::int64_t>(config.warps * entries * config.tile_out * 8 * 32);
  }
  costs.store = config.warps * (50.0 + 8.0 * passes);
  costs.chunk = config.warps * loop / shape.warps_in;
  costs.item = config.warps * (200.0 + 30.0 * passes + 4.0 * shape.sums);
  costs.begin = config.warps * 120.0;
  return costs;
}

}  // namespace sparsekiln::cuda
