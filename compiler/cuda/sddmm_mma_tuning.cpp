#include <algorithm>
#include <optional>

#include "compiler/cuda/sddmm_mma.h"
#include "compiler/cuda/sddmm_tuning.h"

namespace sparsekiln::cuda {
namespace {

std::optional<Config> default_config(const Sddmm& gradient, const Target& target, std::int64_t n) {
  if (gradient.ieee()) return std::nullopt;
  Config config = default_sddmm_stages(gradient, target, n);
  config.variant = Variant::mma;
  config.tile_out = 0;
  // Up to 4 warps share the k-steps of a stage where the sums do not keep as many busy.
  config.warps = std::clamp(config.tile_n * static_cast<std::int32_t>(size_of(gradient.dtype)) / 32, 1, 4);
  add_warps(config, gradient, 32 * 32);
  config.split = resident_split(target, sddmm_mma_shape(gradient, target, config));
  return config;
}

SddmmCosts loop_costs(const Sddmm& gradient, const Target& target, const Config& config) {
  const SddmmShape shape = sddmm_mma_shape(gradient, target, config);
  SddmmCosts costs = sddmm_copy_costs(gradient, config, shape, {.begin = 227, .dy_copy = 8.7, .x_copy = 7.5});
  const bool floats = gradient.dtype == DType::f32;
  const std::int32_t a = std::max(gradient.block.out / (16 * shape.warps_out), 1);
  const std::int32_t b = run_inputs(gradient, config) / (8 * shape.warps_in);
  const std::int32_t steps = config.tile_n / (floats ? 8 : 16) / shape.warps_n;
  const std::int32_t warps = shape.warps_out * shape.warps_n;  // of a group
  costs.group_products = std::int64_t{warps} * a * b * steps * halves(target, gradient.dtype);
  costs.group_shared_bytes = std::int64_t{warps} * steps * (512 * a + 256 * b);
  // Floats are read one by one, and rounded.
  const double loads = floats ? 14.6 * a + 6.7 * b : 3.4 * a + ceil_div(b, 2);
  costs.group = warps * (11.8 + steps * loads);
  // Sums go to shared memory in pairs; of blocks with 8 outputs half of a tile.
  const double pairs = a * b * (gradient.block.out == 8 ? 1 : 2);
  costs.run += 6.5 * config.warps * shape.warps_n + 19.0 * config.warps * pairs;
  return costs;
}

}  // namespace

const SddmmTuning kSddmmMmaTuning{{.variant = Variant::mma,
                                   .axes = {.tile_n = {16, 32, 64, 128},
                                            .tile_out = {0},
                                            .stages = {2, 3, 4},
                                            .warps = {1, 2, 4, 8},
                                            .split = {1, 2, 4},
                                            .tiles = {{1, 1}, {2, 1}, {4, 1}, {8, 1}},
                                            .table = {TableForm::constant, TableForm::global},
                                            .operand_a = {OperandA::x}},
                                   .rejection = rejects_ieee<Sddmm>,
                                   .default_config = default_config},
                                  loop_costs};

}  // namespace sparsekiln::cuda
