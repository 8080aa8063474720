#include "compiler/cuda/mma_tuning.h"

#include <algorithm>
#include <cstddef>

#include "compiler/cuda/mma_shape.h"
#include "compiler/cuda/types.h"
#include "compiler/element.h"

namespace sparsekiln::cuda {
namespace {

LoopCosts loop_costs(const Spmm& problem, const Target& target, const Config& config) {
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
                                      (floats && by_columns && !weight_a ? b : ceil_div(b, 2)));
  // To tf32: units where they arrive, if several warps read them, else words of fragments.
  const bool rounds_units = floats && config.warps > 1;
  const std::int32_t rounded = floats && !rounds_units ? steps * (4 * a + 2 * b) : 0;
  // Sums of 8-bit floats are added by CUDA cores.
  const double added = if_it(is_float8(problem.dtype), 4.0 * a * b * steps);
  const double round_pass = if_it(rounds_units, 10);
  const std::int32_t passes_x = ceil_div(config.tile_n * shape.chunk_units, shape.threads);
  const std::int32_t passes_w = ceil_div(outputs * shape.chunk_units, shape.threads);
  const bool ring = config.rows * problem.weights() > 1;
  const double through_registers = if_it(!shape.async_copy, 5);  // a pass: read here, written there
  const double warps = config.warps;
  // Feature-major, values are stored one by one.
  const double stores = shape.sums * (problem.feature_major() ? 7.8 : 14.0 / shape.interleave);

  LoopCosts costs;
  costs.threads = shape.threads;
  const std::int32_t held = shape.async_copy ? 0 : 4 * (passes_x + passes_w);
  costs.registers = std::min(kMostRegisters, shape.sums + 4 * a + 2 * b + held + (by_columns ? 64 : 56));
  costs.shared_bytes = shape.shared_bytes + kMmaStaticShared;
  costs.shape = shape.chunk;
  costs.chunk_products = std::int64_t{config.warps} * a * b * steps * halves(target, problem.dtype);
  costs.chunk_shared_bytes =
      std::int64_t{rounds_units ? 48 : 16} * shape.chunk_units * (config.tile_n + outputs) +
      std::int64_t{config.warps} * steps * (512 * a + 256 * b);
  costs.begin = warps * 196;
  costs.chunk =
      warps *
      (33 + if_it(ring, 30) + if_it(shape.chunk.blocks > 1, 7) + if_it(by_columns, 7) + loads +
       2.0 * rounded + added +
       ((config.merge > 1 ? 17.0 : 1.2) + through_registers + block_scale_costs(problem) + round_pass) *
           passes_w);
  costs.load = warps * passes_x *
               ((problem.has_whole_tiles(config.tile_n) ? 2.5 : 5.0) + through_registers +
                activation_costs(problem) + round_pass);
  costs.item = warps * 0.4 * shape.sums;
  costs.store = warps * 16;
  const double packed = if_it(problem.out_dtype != DType::f32, 1.7);
  costs.entries = warps * (stores + shape.sums * (packed + value_costs(problem) / problem.weights())) *
                  kEntries / config.tile_n;
  costs.part = warps * (32 + 1.6 * shape.sums);
  costs.waits = {.chunk = 0.0826 + 0.16 * (shape.chunk.blocks - 1) + if_it(config.rows > 1, 0.103) +
                          0.18 * (config.merge - 1),
                 .kilobyte = 0.0061,
                 .instruction = 2.03};
  const std::int32_t rows = config.tile_n / shape.warps_n / (weight_a ? 4 : 8);
  add_lattice_costs(costs, problem, {.passes = passes_x, .registers = 7, .rows = rows});
  return costs;
}

const char* rejection(const Spmm& problem, const Target& target, const Config& config) {
  if (on_cuda_cores(problem, target)) return kOtherArithmetic;
  if (config.operand_a != OperandA::w && config.tile_n % 16 != 0) return kRowsOfA;
  const std::int32_t values = problem.block.out * config.merge * config.tile_n;  // of an output tile
  if (values % (128 * config.warps) != 0) return "warps do not share out the tensor-core tiles evenly";
  if (values * config.rows * problem.weights() > kMostMmaSums * 32 * config.warps)
    return "a thread would hold more sums than its registers";
  return nullptr;
}

/// Whether what the lanes of a warp that share a batch row store at once are whole sectors. Where blocks are
/// read by columns, outputs keep their order, and a warp may have too few.
bool stores_sectors(const Spmm& problem, const Target& target, const Config& config) {
  constexpr std::size_t kSector = 32;  // bytes
  if (!problem.by_columns() || problem.feature_major()) return true;
  const std::size_t lanes = config.operand_a == OperandA::w ? 8 : 4;
  const auto interleave = static_cast<std::size_t>(mma_shape(problem, target, config).interleave);
  return lanes * interleave * size_of(problem.out_dtype) >= kSector;
}

bool keeps_costs(const Spmm& problem, const Target& target, const Config& config, const LoopCosts& costs) {
  return has_registers(problem, target, config, costs) && stores_sectors(problem, target, config);
}

}  // namespace

const SpmmTuning kSpmmMmaTuning{
    {.variant = Variant::mma,
     .axes = {.tile_n = {8, 16, 24, 32, 48, 64, 128, 256},
              .tile_out = {0},
              .stages = {2, 4, 6},
              .warps = {1, 2, 4, 8},
              .split = {1, 2, 4},
              .tiles = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {1, 4}},
              .table = {TableForm::constant, TableForm::global, TableForm::unrolled},
              .operand_a = {OperandA::x, OperandA::w}},
     .rejection = rejection,
     .default_axes = {.tile_n = {8, 16, 32, 48, 64, 128, 256},
                      .tile_out = {0},
                      .stages = {4, 6, 2},  // the first of equals
                      .warps = {1, 2, 4, 8},
                      .split = {1, 2, 4},
                      .tiles = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {1, 4}},
                      .table = {TableForm::global},
                      .operand_a = {OperandA::x, OperandA::w}}},
    loop_costs,
    keeps_costs};

}  // namespace sparsekiln::cuda
