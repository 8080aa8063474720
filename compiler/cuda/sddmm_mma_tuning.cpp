#include <algorithm>

#include "compiler/cuda/sddmm_mma.h"
#include "compiler/cuda/sddmm_tuning.h"

namespace sparsekiln::cuda {
namespace {

const char* rejection(const Sddmm& gradient, const Target&, const Config& config) {
  return sddmm_rejection(gradient, config, false);
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
                                   .rejection = rejection,
                                   .default_axes = {.tile_n = {16, 32, 64, 128},
                                                    .tile_out = {0},
                                                    .stages = {2, 3, 4},
                                                    .warps = {2, 4, 8},
                                                    .split = {1, 2, 4},
                                                    .tiles = {{1, 1}, {2, 1}, {4, 1}, {8, 1}},
                                                    .table = {TableForm::global},
                                                    .operand_a = {OperandA::x}}},
                                  loop_costs,
                                  has_sddmm_registers};

}  // namespace sparsekiln::cuda
