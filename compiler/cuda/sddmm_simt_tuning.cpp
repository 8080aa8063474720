#include "compiler/cuda/sddmm_simt.h"
#include "compiler/cuda/sddmm_tuning.h"

namespace sparsekiln::cuda {
namespace {

const char* rejection(const Sddmm& gradient, const Target&, const Config& config) {
  return sddmm_rejection(gradient, config, true);
}

SddmmCosts loop_costs(const Sddmm& gradient, const Target& target, const Config& config) {
  const SddmmShape shape = sddmm_simt_shape(gradient, target, config);
  SddmmCosts costs = sddmm_copy_costs(gradient, config, shape, {.begin = 123, .dy_copy = 8.5, .x_copy = 3.3});
  const std::int32_t parts = shape.threads * shape.sums / (gradient.block.out * run_inputs(gradient, config));
  const std::int32_t entries = config.tile_n / parts;  // of a thread
  const std::int32_t unrolled = config.tile_out == 4 ? 8 : 2;
  costs.group = config.warps * (entries * (shape.sums + 4.9) + 10.0 * ceil_div(entries, unrolled));
  costs.group_fmas = std::int64_t{32} * config.warps * entries * shape.sums;
  costs.group_shared_bytes = std::int64_t{config.warps} * 32 * entries * config.tile_out * 8;
  costs.run += config.warps * (7.0 * shape.sums + 11.0 * parts + 2.0 * shape.sums * (parts - 1) / parts);
  return costs;
}

}  // namespace

const SddmmTuning kSddmmSimtTuning{{.variant = Variant::simt,
                                    .axes = {.tile_n = {8, 16, 32, 64},
                                             .tile_out = {4, 8},
                                             .stages = {2, 3, 4},
                                             .warps = {2, 4, 8},
                                             .split = {1, 2, 4},
                                             .tiles = {{1, 1}, {2, 1}, {4, 1}, {8, 1}},
                                             .table = {TableForm::constant, TableForm::global},
                                             .operand_a = {OperandA::x}},
                                    .rejection = rejection,
                                    .default_axes = {.tile_n = {16, 32, 64},
                                                     .tile_out = {4, 8},
                                                     .stages = {2, 3, 4},
                                                     .warps = {2, 4, 8},
                                                     .split = {1, 2, 4},
                                                     .tiles = {{1, 1}, {2, 1}, {4, 1}, {8, 1}},
                                                     .table = {TableForm::global},
                                                     .operand_a = {OperandA::x}}},
                                   loop_costs,
                                   has_sddmm_registers};

}  // namespace sparsekiln::cuda
