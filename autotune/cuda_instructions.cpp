#include "autotune/cuda_instructions.h"

#include <algorithm>

#include "compiler/activation.h"
#include "compiler/cuda/mma_shape.h"
#include "compiler/cuda/sddmm_shape.h"
#include "compiler/cuda/simt_shape.h"
#include "compiler/cuda/stream_shape.h"

// How often a kernel does what follows from its template; what that takes each time, in PTX, was fitted to
// the emulator's counters of 289 kernels, and is held to them by tests/counters/prediction_test.cpp.

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kMostRegisters = 255;  ///< a thread
constexpr double kEntries = 8;                ///< of LoopCosts::entries

std::int32_t quotient_up(std::int32_t value, std::int32_t divisor) { return (value + divisor - 1) / divisor; }

/// Of what not all kernels have.
double if_it(bool has, double costs) { return has ? costs : 0; }

/// Tensor-core instructions for a product 32 bytes deep: m16n8k16 is not there before sm_80.
std::int32_t halves(const Target& target, DType dtype) {
  return target.compute_capability() < 80 && dtype != DType::f32 ? 2 : 1;
}

/// Whether no batch tile lacks entries, as the emitter has it.
bool full_tiles(const Spmm& problem, const Config& config) {
  return !problem.batch.dynamic() && problem.batch.bound() % config.tile_n == 0;
}

/// Of the epilogue, a value of y.
double value_costs(const Computation& problem) {
  const Epilogue& epilogue = problem.epilogue;
  return row_of(epilogue.activation).value_cost + if_it(epilogue.bias, 2) + if_it(epilogue.scale, 5) +
         if_it(epilogue.residual, 5) + if_it(epilogue.glu, 2);
}

/// Of a copy of x by one pass of a warp, besides the copy itself: narrower ones, and the derivative at z.
double activation_costs(const Computation& problem) {
  const auto element = static_cast<double>(size_of(problem.dtype));
  return 1.6 * (16.0 / problem.alignment - 1) + 16 / element * row_of(problem.derivative).derivative_cost;
}

/// Likewise of W: a block's gate.
double gate_costs(const Computation& problem) {
  return if_it(problem.gates, 6 * 16 / static_cast<double>(size_of(problem.dtype)));
}

LoopCosts mma_costs(const Spmm& problem, const Target& target, const Config& config) {
  const MmaShape shape = mma_shape(problem, target, config);
  const bool weight_a = config.operand_a == OperandA::w;
  const bool floats = problem.dtype == DType::f32;
  const bool by_columns = problem.by_columns();
  const std::int32_t outputs = problem.block.out * config.merge;
  // Tensor-core tiles of a warp along A and B, and k-steps of a chunk.
  const std::int32_t a = weight_a ? outputs / (16 * shape.warps_out) : config.tile_n / (16 * shape.warps_n);
  const std::int32_t b = weight_a ? config.tile_n / (8 * shape.warps_n) : outputs / (8 * shape.warps_out);
  const std::int32_t steps = shape.chunk_units / 2;
  // ldmatrix gives a tile of A, or two of B. Floats by columns are read a pair at a time.
  const std::int32_t loads = steps * (a * (floats && by_columns && weight_a ? 2 : 1) +
                                      (floats && by_columns && !weight_a ? b : quotient_up(b, 2)));
  const std::int32_t rounded = floats ? steps * (4 * a + 2 * b) : 0;  // words, to tf32
  const std::int32_t passes_x = quotient_up(config.tile_n * shape.chunk_units, shape.threads);
  const std::int32_t passes_w = quotient_up(outputs * shape.chunk_units, shape.threads);
  const bool ring = config.rows * problem.weights() > 1;
  const double through_registers = if_it(!shape.async_copy, 5);  // a pass: read here, written there
  const double warps = config.warps;
  // Feature-major, values are stored one by one.
  const double stores = shape.sums * (problem.feature_major() ? 7.8 : 14.0 / shape.run);

  LoopCosts costs;
  costs.threads = shape.threads;
  costs.registers = std::min(kMostRegisters, shape.sums + 4 * a + 2 * b + 56);
  costs.shared_bytes = shape.shared_bytes + kMmaStaticShared;
  costs.shape = shape.chunk;
  costs.chunk_products = std::int64_t{config.warps} * a * b * steps * halves(target, problem.dtype);
  costs.chunk_shared_bytes = std::int64_t{16} * shape.chunk_units * (config.tile_n + outputs) +
                             std::int64_t{config.warps} * steps * (512 * a + 256 * b);
  costs.begin = warps * 196;
  costs.chunk =
      warps * (33 + if_it(ring, 30) + if_it(shape.chunk.blocks > 1, 7) + if_it(by_columns, 7) + loads +
               2.0 * rounded +
               ((config.merge > 1 ? 17.0 : 1.2) + through_registers + gate_costs(problem)) * passes_w);
  costs.load = warps * passes_x *
               ((full_tiles(problem, config) ? 2.5 : 5.0) + through_registers + activation_costs(problem));
  costs.item = warps * 0.4 * shape.sums;
  costs.store = warps * 16;
  const double packed = if_it(problem.out_dtype != DType::f32, 1.7);
  costs.entries = warps * (stores + shape.sums * (packed + value_costs(problem) / problem.weights())) *
                  kEntries / config.tile_n;
  costs.part = warps * (40 + 5.0 * shape.sums);
  return costs;
}

LoopCosts stream_costs(const Spmm& problem, const Target& target, const Config& config) {
  const StreamShape shape = stream_shape(problem, target, config);
  const std::int32_t units_x = config.tile_n / 8;
  const std::int32_t units_w = problem.block.out / 8;
  const std::int32_t tiles = problem.block.out * config.tile_n / 128;
  const double warps = config.warps;
  // Sums that a thread has once the warps have met.
  const double gathered = std::max(problem.block.out * config.tile_n / shape.threads, shape.run);

  LoopCosts costs;
  costs.threads = shape.threads;
  costs.registers = std::min(kMostRegisters, stream_registers(problem, target, config));
  costs.shared_bytes = shape.shared_bytes + kStreamStaticShared;
  costs.shape = shape.chunk;
  costs.chunk_products = shape.tensor_cores ? std::int64_t{2} * tiles * halves(target, problem.dtype) : 0;
  if (!shape.tensor_cores)
    costs.chunk_fmas = std::int64_t{kStreamChunkBytes / 4} * problem.block.out * config.tile_n;
  costs.chunk_shared_bytes = std::int64_t{2} * kStreamChunkBytes * (config.tile_n + problem.block.out);
  costs.begin = warps * (123 + 0.7 * (config.stages - 1) * (units_x + units_w));
  // A warp has a chunk of its own.
  costs.chunk = 34.5 + if_it(shape.chunk.blocks > 1, 10) + 10 * units_x + 3.6 * units_w;
  costs.chunk += shape.tensor_cores ? if_it(problem.dtype == DType::f32, 7.0 * (units_x + units_w))
                                    : 4.0 * units_w * config.tile_n;
  costs.item = warps * ((shape.tensor_cores ? 3.3 : 14.3) * shape.sums + 2.7 * gathered * warps / shape.run);
  costs.entries = warps * gathered * (1 + value_costs(problem)) * kEntries / config.tile_n;
  costs.part = warps * 38;
  return costs;
}

LoopCosts simt_costs(const Spmm& problem, const Target& target, const Config& config) {
  const SimtShape shape = simt_shape(problem, target, config);
  const std::int32_t quads = shape.chunk / 4;
  const std::int32_t sums = shape.thread_n * config.tile_out;  // of one output tile
  const std::int32_t tiles = config.rows * problem.weights();
  const std::int32_t passes_x = quotient_up(quads * config.tile_n, shape.threads);
  const std::int32_t passes_w = quotient_up(quads * problem.block.out, shape.threads);
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

void add_tensor_cores(SddmmCosts& costs, const Sddmm& gradient, const Target& target, const Config& config,
                      const SddmmShape& shape, std::int32_t columns) {
  const bool floats = gradient.dtype == DType::f32;
  const std::int32_t a = std::max(gradient.block.out / (16 * shape.warps_out), 1);
  const std::int32_t b = columns / (8 * shape.warps_in);
  const std::int32_t steps = config.tile_n / (floats ? 8 : 16) / shape.warps_n;
  const std::int32_t warps = shape.warps_out * shape.warps_n;  // of a group
  costs.group_products = std::int64_t{warps} * a * b * steps * halves(target, gradient.dtype);
  costs.group_shared_bytes = std::int64_t{warps} * steps * (512 * a + 256 * b);
  // Floats are read one by one, and rounded.
  const double loads = floats ? 14.6 * a + 6.7 * b : 3.4 * a + quotient_up(b, 2);
  costs.group = warps * (11.8 + steps * loads);
  // Sums go to shared memory in pairs; of blocks with 8 outputs half of a tile.
  const double pairs = a * b * (gradient.block.out == 8 ? 1 : 2);
  costs.run += 6.5 * config.warps * shape.warps_n + 19.0 * config.warps * pairs;
}

void add_cuda_cores(SddmmCosts& costs, const Sddmm& gradient, const Config& config, const SddmmShape& shape,
                    std::int32_t columns) {
  const std::int32_t parts = shape.threads * shape.sums / (gradient.block.out * columns);
  const std::int32_t entries = config.tile_n / parts;  // of a thread
  const std::int32_t unrolled = config.tile_out == 4 ? 8 : 2;
  costs.group = config.warps * (entries * (shape.sums + 4.9) + 10.0 * quotient_up(entries, unrolled));
  costs.group_fmas = std::int64_t{32} * config.warps * entries * shape.sums;
  costs.group_shared_bytes = std::int64_t{config.warps} * 32 * entries * config.tile_out * 8;
  costs.run += config.warps * (7.0 * shape.sums + 11.0 * parts + 2.0 * shape.sums * (parts - 1) / parts);
}

}  // namespace

LoopCosts loop_costs(const Spmm& problem, const Target& target, const Config& config) {
  LoopCosts costs = config.variant == Variant::mma      ? mma_costs(problem, target, config)
                    : config.variant == Variant::stream ? stream_costs(problem, target, config)
                                                        : simt_costs(problem, target, config);
  costs.shape.weights = problem.weights();
  return costs;
}

SddmmCosts loop_costs(const Sddmm& gradient, const Target& target, const Config& config) {
  const SddmmShape shape = sddmm_shape(gradient, target, config);
  const auto element = static_cast<std::int32_t>(size_of(gradient.dtype));
  const std::int32_t columns = config.rows * gradient.block.in;
  const auto passes = [&](std::int32_t features) {
    return quotient_up(config.tile_n * features * element / 16, shape.threads);
  };
  const bool tensor_cores = config.variant == Variant::mma;
  SddmmCosts costs;
  costs.threads = shape.threads;
  costs.registers = std::min(kMostRegisters, shape.sums + 64);
  costs.shared_bytes = shape.shared_bytes + kSddmmStaticShared;
  costs.warps_in = shape.warps_in;
  costs.chunk_shared_bytes = std::int64_t{config.tile_n} * (gradient.block.out + columns) * element;
  const double copies =
      ((tensor_cores ? 8.7 : 8.5) + activation_costs(gradient)) * passes(gradient.block.out) +
      (tensor_cores ? 7.5 : 3.3) * passes(columns);
  costs.begin = config.warps * (tensor_cores ? 227 : 123);
  costs.run = config.warps * (18 + 3.0 * (config.stages - 1) * passes(columns));
  costs.chunk = config.warps * (18 + copies);
  // 16 bytes of each lane.
  costs.block = 16.0 * static_cast<double>(gradient.block_elements()) *
                static_cast<double>(size_of(gradient.out_dtype)) / 512;
  if (tensor_cores)
    add_tensor_cores(costs, gradient, target, config, shape, columns);
  else
    add_cuda_cores(costs, gradient, config, shape, columns);
  return costs;
}

}  // namespace sparsekiln::cuda
