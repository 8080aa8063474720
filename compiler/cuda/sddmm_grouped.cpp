#include "compiler/cuda/sddmm_grouped.h"

#include <fmt/format.h>

#include "compiler/block_groups.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/wgmma_problem.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kBatchRows = 32;      ///< of a stage
constexpr std::int32_t kMultiplying = 3;     ///< warpgroups
constexpr std::int32_t kMostPieces = 12;     ///< whose sums leave a thread registers for the rest
constexpr std::int32_t kLeastStages = 3;     ///< one is given back when the next one's products are queued
constexpr std::int32_t kMostStages = 6;      ///< with room for a few tiles
constexpr std::int64_t kStaticBytes = 4096;  ///< barriers, the flag of the combine, and sums of dy
constexpr std::int32_t kLineBytes = 128;     ///< of a row of a tile

void check_numbers(const Config& config) {
  if (config.tile_n != kBatchRows)
    refuse(config, fmt::format("tile_n, the batch rows of a stage, is {} in variant grouped", kBatchRows));
  if (config.warps != kGroupedWarps)
    refuse(config, fmt::format("variant grouped has four warpgroups: warps={} would work", kGroupedWarps));
  if (config.stages < kLeastStages || config.stages > kMostStages)
    refuse(config, fmt::format("stages is {} to {} in variant grouped", kLeastStages, kMostStages));
  if (config.rows != kMostPieces / 2 && config.rows != kMostPieces)
    refuse(config, "rows, the pieces of a group, is 6 or 12 in variant grouped");
  if (config.tile_out != 0)
    refuse(config, "variant grouped shares out a group by itself: tile_out=0 would work");
  if (config.split != 1)
    refuse(config, "a multiprocessor has one CTA of variant grouped: split=1 would work");
}

void validate(const Sddmm& gradient, const Target& target) {
  require_wgmma(gradient, gradient.block, target);
  require_wgmma(gradient.dtype == DType::f16 || gradient.dtype == DType::bf16,
                fmt::format("wgmma transposes operands of 16 bits, not {}", name(gradient.dtype)));
  require_wgmma(gradient.cut_in == 0 && gradient.cut_out == 0,
                fmt::format("variant grouped reads whole blocks of features, not {} and {} of them",
                            gradient.in_features(), gradient.out_features()));
}

/// x and dy of each pair in turn, in boxes of a stage's batch rows and 128 bytes of their features.
std::vector<TensorMap> tensor_maps(const Sddmm& gradient, const Config& config) {
  std::vector<TensorMap> maps;
  for (std::size_t pair = 0; pair < kMostPairs; ++pair)
    for (const Argument operand : {Argument::pair_x, Argument::pair_dy})
      maps.push_back(
          {.operand = operand,
           .type = gradient.dtype,
           .row_length = operand == Argument::pair_x ? gradient.in_features() : gradient.out_features(),
           .box_length = kPieceSide,
           .box_rows = config.tile_n,
           .swizzle_bytes = kLineBytes,
           .pair = static_cast<std::int32_t>(pair)});
  return maps;
}

Instance instantiate(const Sddmm& gradient, const Target&, const Config& config) {
  const SddmmGroupedShape shape = sddmm_grouped_shape(gradient, config);
  Instance instance;
  instance.threads = shape.threads;
  instance.dynamic_shared_bytes = static_cast<std::int32_t>(shape.shared_bytes);
  instance.tensor_maps = tensor_maps(gradient, config);
  Declarations& members = instance.declarations;
  members.number("place_tiles", shape.place_tiles, "tiles that a stage has room for");
  members.number("interleave", shape.interleave, "neighboring inputs of a thread");
  members.number("operands", wgmma_operands_of(gradient.dtype), "ptx::WgmmaOperands");
  return instance;
}

}  // namespace

SddmmGroupedShape sddmm_grouped_shape(const Sddmm& gradient, const Config& config) {
  check_numbers(config);
  SddmmGroupedShape shape;
  shape.pairs = config.rows / (2 * kMultiplying);
  const GroupShape group = group_shape(gradient, config);
  shape.place_tiles = static_cast<std::int32_t>(group.place_bytes / group.in_bytes);
  shape.interleave = 8 / static_cast<std::int32_t>(size_of(gradient.out_dtype));
  shape.sums = kPieceSide * kPieceSide / 128 * 2 * shape.pairs;
  shape.static_bytes = kStaticBytes;
  shape.shared_bytes = std::int64_t{config.stages} * shape.place_tiles * config.tile_n * kLineBytes;
  return shape;
}

extern const SddmmFamily kSddmmGrouped;
const SddmmFamily kSddmmGrouped{Variant::grouped, "sddmm_grouped", Arithmetic::tensor_cores,
                                validate,         instantiate,     &kSddmmGroupedTuning,
                                "sm_90a"};

}  // namespace sparsekiln::cuda
