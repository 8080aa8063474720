#include <algorithm>

#include "compiler/cuda/halo_shape.h"
#include "compiler/cuda/sddmm_grouped.h"
#include "compiler/cuda/sddmm_halo.h"

namespace sparsekiln::cuda {
namespace {

/// A step of a pair of 64 inputs and `outs` outputs, cycles of its multiprocessor: the tensor cores', or
/// those of shared memory, which gives 128 bytes in one (docs/tuning-model.md). Variant grouped, whose
/// prototype an H100 ran, takes 1.47 times the former, and 1.13 times the latter with its copies.
double step_cycles(std::int32_t outs) { return std::max(1.47 * outs / 2, 1.13 * (64 + outs) * 32 / 128); }

SddmmCosts loop_costs(const Sddmm& gradient, const Target&, const Config& config) {
  constexpr double kClockGhz = 1.755;  // at which those were measured
  constexpr double kKilobyteCycles = 1.13 * 1024 / 128;
  const SddmmHaloShape shape = sddmm_halo_shape(gradient, config);
  const std::int32_t outs = shape.group.piece.out;
  const std::int32_t products = config.tile_n / 16 * (config.rows / 2);  // of a chunk, each of four warps
  SddmmCosts costs;
  costs.threads = shape.threads;
  costs.registers = 128;  // as they are launched
  costs.shared_bytes = shape.shared_bytes + kSddmmHaloStaticShared;
  costs.full_rate = true;
  costs.copies_lines = true;
  costs.product_tiles = outs / 8;
  costs.group_products = std::int64_t{4} * products;
  costs.group_shared_bytes = std::int64_t{products} * (64 + outs) * 32;
  costs.out_rows_of_one = static_cast<double>(gradient.correlation->image_lattice_points());
  costs.in_rows_of_one = loaded_of_one(*gradient.correlation, gradient.convolution, false, config.tile_n);
  costs.run = 240.0 * config.rows;
  costs.chunk = 400 + 26.0 * products;
  costs.block = 0.2 * static_cast<double>(gradient.block_elements());
  costs.waits = {.chunk = products * step_cycles(outs) * 1e-3 / kClockGhz,
                 .kilobyte = kKilobyteCycles * 1e-3 / kClockGhz,
                 .launch = 4};
  return costs;
}

const char* rejection(const Sddmm& gradient, const Target& target, const Config& config) {
  if (gradient.ieee()) return kOtherArithmetic;
  if (!gradient.gathers()) return "halo is for convolutions";
  if (gradient.tiled_rows(gradient.batch.bound(), config) < kChunksOfSlice * config.tile_n)
    return "the images have fewer tiles than pay for the sums of many blocks";
  return target.compute_capability() == 90 ? nullptr : "halo is for sm_90";
}

}  // namespace

const SddmmTuning kSddmmHaloTuning{
    {.variant = Variant::halo,
     .axes = {.tile_n = {32, 64, 96, 112, 128},
              .tile_out = {0},
              .stages = {2, 3, 4},
              .warps = {kGroupedWarps},
              .split = {1},
              .tiles = {{6, 1}, {12, 1}, {18, 1}, {24, 1}, {30, 1}, {36, 1}, {42, 1}},
              .table = {TableForm::constant, TableForm::global},
              .operand_a = {OperandA::x}},
     .rejection = rejection,
     .default_axes = {.tile_n = {64, 112},
                      .tile_out = {0},
                      .stages = {2, 3},
                      .warps = {kGroupedWarps},
                      .split = {1},
                      .tiles = {{12, 1}, {18, 1}, {24, 1}, {30, 1}, {36, 1}, {42, 1}},
                      .table = {TableForm::global},
                      .operand_a = {OperandA::x}}},
    loop_costs};

}  // namespace sparsekiln::cuda
