#include "compiler/block_groups.h"
#include "compiler/cuda/sddmm_grouped.h"

namespace sparsekiln::cuda {
namespace {

SddmmCosts loop_costs(const Sddmm& gradient, const Target&, const Config& config) {
  constexpr double kWarps = 12;  // that multiply
  const SddmmGroupedShape shape = sddmm_grouped_shape(gradient, config);
  const std::int32_t products = config.tile_n / 16 * (config.rows / 2);  // of a chunk, each of four warps
  SddmmCosts costs;
  costs.threads = shape.threads;
  costs.registers = 128;  // the mean: 56 of the threads that feed, 152 of the others
  costs.shared_bytes = shape.shared_bytes + shape.static_bytes;
  costs.full_rate = true;
  costs.product_tiles = 2 * kPieceSide / 8;
  costs.group_products = std::int64_t{4} * products;
  costs.group_shared_bytes = std::int64_t{products} * 3 * kPieceSide * 32;
  costs.chunk_shared_bytes = std::int64_t{config.tile_n} * 2 * kPieceSide;  // of a tile
  costs.begin = kWarps * 100;
  costs.run = kWarps * (10 + (shape.run == 4 ? 4.8 : 3.1) * shape.sums);
  costs.chunk = kWarps * (44 + 1.5 * products / 3);
  return costs;
}

const char* rejection(const Sddmm& gradient, const Target& target, const Config&) {
  if (gradient.ieee()) return kOtherArithmetic;
  return target.compute_capability() == 90 ? nullptr : "wgmma is for sm_90";
}

}  // namespace

const SddmmTuning kSddmmGroupedTuning{{.variant = Variant::grouped,
                                       .axes = {.tile_n = {32},
                                                .tile_out = {0},
                                                .stages = {3, 4, 5, 6},
                                                .warps = {kGroupedWarps},
                                                .split = {1},
                                                .tiles = {{6, 1}, {12, 1}},
                                                .table = {TableForm::constant, TableForm::global},
                                                .operand_a = {OperandA::x}},
                                       .rejection = rejection},
                                      loop_costs};

}  // namespace sparsekiln::cuda
