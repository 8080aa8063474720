#include "autotune/cpu/families.h"

#include <algorithm>

#include "autotune/cpu/defaults.h"
#include "autotune/cpu/prediction.h"

namespace sparsekiln::cpu {
namespace {

const char* rejection(const Spmm& problem, const Target& target, const Config& config);

const FamilyTuning<Spmm> kSpmmVector{.variant = Variant::vector,
                                     .axes = {.tile_n = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128},
                                              .tile_out = {0, 2, 3, 4, 6, 8},
                                              .stages = {1},
                                              .warps = {1},
                                              .split = {1, 2, 4, 8},
                                              .tiles = {{1, 1}},
                                              .table = {TableForm::global},
                                              .operand_a = {OperandA::x}},
                                     .rejection = rejection};
const FamilyTuning<Sddmm> kSddmmVector{.variant = Variant::vector,
                                       .axes = {.tile_n = {16, 32, 64, 128},
                                                .tile_out = {0},
                                                .stages = {1, 2},
                                                .warps = {1},
                                                .split = {1, 2, 4, 8},
                                                .tiles = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {8, 1}},
                                                .table = {TableForm::global},
                                                .operand_a = {OperandA::x}},
                                       .rejection = rejects_nothing<Sddmm>};

const char* rejection(const Spmm& problem, const Target& target, const Config& config) {
  if (config.tile_n > kMostBatchRows && !problem.correlation)
    return "tiles are so wide only where a convolution packs what lies between them twice";
  const auto tile = expected_tile(problem, target, config);
  Config less = config;
  const auto same = [&](std::int32_t tile_out) {
    less.tile_out = tile_out;
    return tile_out < config.tile_out && expected_tile(problem, target, less) == tile;
  };
  const auto& values = kSpmmVector.axes.tile_out;
  return std::any_of(values.begin(), values.end(), same) ? "a smaller tile_out gives the same register tiles"
                                                         : nullptr;
}

}  // namespace

std::vector<const FamilyTuning<Spmm>*> spmm_tunings() { return {&kSpmmVector}; }
std::vector<const FamilyTuning<Sddmm>*> sddmm_tunings() { return {&kSddmmVector}; }

}  // namespace sparsekiln::cpu
