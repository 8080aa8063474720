#include "compiler/block_groups.h"
#include "compiler/cuda/sddmm_grouped.h"

namespace sparsekiln::cuda {
namespace {

/// Until a chunk of 32 batch rows is multiplied, microseconds, as fitted to a prototype of the same structure
/// with twelve products of 64 × 64 a CTA: of 256 chunks, which took 254 us where CTAs read 13.1 tiles on
/// average, and 258 where they read 10.4, the rest being what the other parts of the model say.
constexpr double kChunk = 0.642;

SddmmCosts loop_costs(const Sddmm& gradient, const Target&, const Config& config) {
  const SddmmGroupedShape shape = sddmm_grouped_shape(gradient, config);
  const std::int32_t products = config.tile_n / 16 * (config.rows / 2);  // of a chunk, each of four warps
  const std::int64_t pieces = gradient.block_elements() / (kPieceSide * kPieceSide);
  SddmmCosts costs;
  costs.threads = shape.threads;
  costs.registers = 128;  // as they are launched
  costs.shared_bytes = shape.shared_bytes + shape.static_bytes;
  costs.full_rate = true;
  costs.product_tiles = 2 * kPieceSide / 8;
  costs.group_products = std::int64_t{4} * products;
  costs.group_shared_bytes = std::int64_t{products} * 3 * kPieceSide * 32;
  costs.run = 2490 + 42.0 * config.rows;
  costs.chunk = 64 + 76.3 * config.rows;
  costs.block =
      (shape.interleave == 4 ? 573.0 : 422.0) * static_cast<double>(pieces);  // halves are exchanged
  costs.waits = {.chunk = kChunk};
  return costs;
}

const char* rejection(const Sddmm& gradient, const Target& target, const Config& config) {
  if (gradient.ieee()) return kOtherArithmetic;
  if (gradient.product_rows(gradient.batch.bound()) < kChunksOfSlice * config.tile_n)
    return "the batch has fewer chunks than pay for the sums of many blocks";
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
                                       .rejection = rejection,
                                       .default_axes = {.tile_n = {32},
                                                        .tile_out = {0},
                                                        .stages = {4, 5},
                                                        .warps = {kGroupedWarps},
                                                        .split = {1},
                                                        .tiles = {{6, 1}, {12, 1}},
                                                        .table = {TableForm::global},
                                                        .operand_a = {OperandA::x}}},
                                      loop_costs};

}  // namespace sparsekiln::cuda
