#include "compiler/cuda/sddmm_wgmma.h"

namespace sparsekiln::cuda {
namespace {

SddmmCosts loop_costs(const Sddmm& gradient, const Target& target, const Config& config) {
  constexpr double kWarps = 8;  // that multiply
  const SddmmWgmmaShape shape = sddmm_wgmma_shape(gradient, target, config);
  const std::int32_t steps = config.tile_n / 16;
  const std::int32_t instructions = 2 * steps;
  SddmmCosts costs;
  costs.threads = shape.threads;
  costs.registers = 168;  // the mean: 40 of the producer's threads, 232 of the others
  costs.shared_bytes = shape.shared_bytes + shape.static_bytes;
  costs.full_rate = true;
  costs.product_tiles = shape.columns / 8;
  costs.group_products = std::int64_t{4} * instructions;  // of the four warps of a warpgroup
  costs.group_shared_bytes = std::int64_t{instructions} * (64 + shape.columns) * 32;
  costs.chunk_shared_bytes = shape.stage_bytes;
  costs.begin = kWarps * 100;
  // All sums go through the epilogue, whether the run has their block or not; halves of 16 bits are
  // exchanged.
  costs.run = kWarps * (10 + (shape.interleave == 4 ? 4.8 : 3.1) * shape.sums);
  costs.chunk = kWarps * (44 + 1.5 * instructions);
  const double ahead = std::max(config.stages - 1, 1);
  costs.waits = {.chunk = 0.27 / ahead, .kilobyte = 0.017 / ahead};
  return costs;
}

const char* rejection(const Sddmm& gradient, const Target& target, const Config&) {
  if (gradient.ieee()) return kOtherArithmetic;
  return target.compute_capability() == 90 ? nullptr : "wgmma is for sm_90";
}

}  // namespace

const SddmmTuning kSddmmWgmmaTuning{{.variant = Variant::wgmma,
                                     .axes = {.tile_n = {64, 128},
                                              .tile_out = {0},
                                              .stages = {3, 4, 6},
                                              .warps = {kWgmmaWarps},
                                              .split = {1},
                                              .tiles = {{1, 1}, {2, 1}, {4, 1}, {8, 1}},
                                              .table = {TableForm::constant, TableForm::global},
                                              .operand_a = {OperandA::x}},
                                     .rejection = rejection,
                                     // An H100 took longer with 128 batch rows, and with runs of four, than
                                     // the model expects, for reasons that are not known.
                                     .default_axes = {.tile_n = {64},
                                                      .tile_out = {0},
                                                      .stages = {3, 4},
                                                      .warps = {kWgmmaWarps},
                                                      .split = {1},
                                                      .tiles = {{1, 1}, {2, 1}},
                                                      .table = {TableForm::global},
                                                      .operand_a = {OperandA::x}}},
                                    loop_costs};

}  // namespace sparsekiln::cuda
