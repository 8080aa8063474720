#include "compiler/cuda/mma_tuning.h"

#include <algorithm>
#include <optional>

#include "compiler/cuda/mma_shape.h"
#include "compiler/cuda/multiprocessor.h"

namespace sparsekiln::cuda {
namespace {

/// n rounded up to a multiple.
std::int32_t round_up(std::int64_t n, std::int32_t multiple) {
  return static_cast<std::int32_t>((n + multiple - 1) / multiple) * multiple;
}

/// The tile and the operand that compute the fewest batch rows that are not there: to 64 of them, one tile
/// in steps of 16 rows, or of 8 columns where a block has the 16 outputs that fill A.
void choose_tile(Config& config, const Spmm& problem, std::int64_t n) {
  constexpr std::int64_t kOneTile = 64;
  constexpr std::int64_t kLargeBatch = 512;
  // Feature-major floats come to B in pairs of tiles, of which a warp may have an odd number.
  const bool fills_a = problem.block.out >= 16 && !(problem.feature_major() && problem.dtype == DType::f32);
  if (n > kOneTile) {
    config.tile_n = n >= kLargeBatch ? 128 : 64;
    return;
  }
  const std::int64_t entries = std::max<std::int64_t>(n, 1);
  config.tile_n = round_up(entries, 16);
  if (!fills_a || round_up(entries, 8) == config.tile_n) return;
  config.operand_a = OperandA::w;
  config.tile_n = round_up(entries, 8);
}

/// Tensor-core tiles of a config, 16 × 8.
std::int32_t tiles_of(const Spmm& problem, const Config& config) {
  return problem.block.out * config.tile_n / 128;
}

/// Warps of 8 tensor-core tiles where a tile has 64 batch rows or more, so that a warp's other work is shared
/// by many products; else of 4, so that small tiles still have warps to hide each other's waits. No warp has
/// more than 16 tiles, as far as 8 warps suffice.
std::int32_t warps_for(std::int32_t tiles, std::int32_t tile_n) {
  const std::int32_t least = tile_n >= 64 ? 16 : 4;  // where a warp is halved
  std::int32_t warps = 1;
  while (warps < 8 && tiles % (warps * 2) == 0 && (warps < 4 ? tiles >= warps * least : tiles > warps * 16))
    warps *= 2;
  return warps;
}

/// CTAs planned for a multiprocessor. Small tiles stream the weight: more CTAs with more copies in flight.
/// One batch tile of 64 has few steps to share out: one CTA with many stages, rather than several that begin
/// and end.
std::int32_t split_for(std::int32_t tile_n, std::int64_t n) {
  if (tile_n < 64) return 4;
  return n <= 64 ? 1 : 2;
}

std::optional<Config> default_config(const Spmm& problem, const Target& target, std::int64_t n) {
  if (problem.ieee()) return std::nullopt;
  Config config;
  config.variant = Variant::mma;
  config.tile_out = 0;
  choose_tile(config, problem, n);
  config.warps = warps_for(tiles_of(problem, config), config.tile_n);
  config.split = split_for(config.tile_n, n);
  config.stages = target.compute_capability() < 80 ? 2 : config.split == 1 ? 6 : 4;
  // As many stages as leave room for the CTAs of one multiprocessor: what does not fit waits for a CTA to
  // end, and the schedule had counted on all of them at once.
  const auto fits = [&] {
    const MmaShape shape = mma_shape(problem, target, config);
    return config.split <= resident_ctas(target, shape.threads, shape.shared_bytes + kMmaStaticShared);
  };
  while (config.stages > 2 && !fits()) --config.stages;
  while (config.split > 1 && !fits()) --config.split;
  return config;
}

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
  const std::int32_t rounded = floats ? steps * (4 * a + 2 * b) : 0;  // words, to tf32
  const std::int32_t passes_x = ceil_div(config.tile_n * shape.chunk_units, shape.threads);
  const std::int32_t passes_w = ceil_div(outputs * shape.chunk_units, shape.threads);
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

const char* rejection(const Spmm& problem, const Target&, const Config& config) {
  if (problem.ieee()) return kOtherArithmetic;
  if (config.operand_a != OperandA::w && config.tile_n % 16 != 0)
    return "the rows of a tensor core's A are 16 batch rows";
  if (problem.block.out * config.merge * config.tile_n < 128 * config.warps)
    return "there are fewer tensor-core tiles than warps";
  return nullptr;
}

}  // namespace

const SpmmTuning kSpmmMmaTuning{
    {.variant = Variant::mma,
     .axes = {.tile_n = {8, 16, 24, 32, 48, 64, 128, 256},
              .tile_out = {0},
              .stages = {2, 4, 6},
              .warps = {2, 4, 8},
              .split = {1, 2, 4},
              .tiles = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {1, 4}},
              .table = {TableForm::constant, TableForm::global, TableForm::unrolled},
              .operand_a = {OperandA::x, OperandA::w}},
     .rejection = rejection,
     .default_config = default_config},
    loop_costs};

}  // namespace sparsekiln::cuda
