#include "compiler/cuda/sddmm_halo.h"

#include <fmt/format.h>

#include "compiler/cuda/halo_problem.h"
#include "compiler/cuda/halo_shape.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/sddmm_grouped.h"
#include "compiler/cuda/wgmma_problem.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kMultiplying = 3;  ///< warpgroups
constexpr std::int32_t kStep = 16;        ///< positions that a wgmma adds
constexpr std::int32_t kMostPositions = 256;
constexpr std::int32_t kLeastStages = 2;
constexpr std::int32_t kMostStages = 6;
/// Registers of a thread for sums, and for two words of descriptors a pair, that leave it enough for the
/// rest.
constexpr std::int32_t kMostRegisters = 128;

void check_numbers(const Config& config, const GroupShape& group) {
  if (config.tile_n < kStep || config.tile_n > kMostPositions || config.tile_n % kStep != 0)
    refuse(config, fmt::format("tile_n, the positions of a tile, is a multiple of {} up to {} in variant "
                               "halo's gradient of the weight",
                               kStep, kMostPositions));
  if (config.warps != kGroupedWarps)
    refuse(config, fmt::format("variant halo has four warpgroups in the gradient of the weight: warps={} "
                               "would work",
                               kGroupedWarps));
  if (config.stages < kLeastStages || config.stages > kMostStages)
    refuse(config, fmt::format("stages is {} to {}", kLeastStages, kMostStages));
  constexpr std::int32_t kPiecesOfPairs = 2 * kMultiplying;
  const std::int32_t most = kMostRegisters / (group.piece.out / 2 + 2) * kPiecesOfPairs;
  if (config.rows < kPiecesOfPairs || config.rows > most || config.rows % kPiecesOfPairs != 0)
    refuse(config, fmt::format("rows, the pieces of a group, is a multiple of {} up to {} for blocks of {} "
                               "outputs",
                               kPiecesOfPairs, most, group.piece.out));
  if (config.tile_out != 0)
    refuse(config, "variant halo shares out a group by itself: tile_out=0 would work");
  if (config.split != 1) refuse(config, "a multiprocessor has one CTA of variant halo: split=1 would work");
  if (group.out_bytes + group.in_bytes > group.place_bytes)
    refuse(config, fmt::format("a tile takes {} bytes with its border, and a stage has {}; fewer stages or a "
                               "smaller tile_n would work",
                               group.out_bytes + group.in_bytes, group.place_bytes));
}

void validate(const Sddmm& gradient, const Target& target) {
  require_halo_images(gradient, gradient.gathers() ? gradient.correlation.get() : nullptr,
                      gradient.image_alignment, target);
  require_halo_steps(gradient.correlation->in_step);
  require_halo(gradient.block.in % kHaloLine == 0 && gradient.block.out % kHaloLine == 0,
               fmt::format("variant halo takes blocks whose sides are multiples of {}, not {}", kHaloLine,
                           to_string(gradient.block)));
  require_halo(gradient.cut_in == 0 && gradient.cut_out == 0,
               fmt::format("variant halo reads whole blocks of features, not {} and {} of them",
                           gradient.in_features(), gradient.out_features()));
  require_halo(
      !gradient.block_scales && !gradient.block_scale_gradient && gradient.derivative == Activation::none,
      "variant halo has neither block scales nor a derivative");
}

/// What taps displace, in boxes with a border, and the other operand.
std::vector<TensorMap> tensor_maps(const Sddmm& gradient, const SddmmHaloShape& shape, const Config& config) {
  const Correlation& lattice = *gradient.correlation;
  TensorMap displaced{.operand = gradient.exchanged() ? Argument::pair_dy : Argument::pair_x,
                      .type = gradient.dtype,
                      .row_length = gradient.col_features(),
                      .box_length = kHaloLine,
                      .box_rows = 1,
                      .swizzle_bytes = kHaloLineBytes,
                      .image = lattice.input,
                      .box_image = shape.box.extents,
                      .step_image = shape.box.step};
  TensorMap other = displaced;
  other.operand = gradient.exchanged() ? Argument::pair_x : Argument::pair_dy;
  other.row_length = gradient.row_features();
  other.image = lattice.output;
  other.step_image = {1, 1, 1};
  other.box_image = {1, config.tile_n / kHaloTileWidth, kHaloTileWidth};
  return {displaced, other};
}

Instance instantiate(const Sddmm& gradient, const Target&, const Config& config) {
  const SddmmHaloShape shape = sddmm_halo_shape(gradient, config);
  Instance instance;
  instance.threads = shape.threads;
  instance.dynamic_shared_bytes = static_cast<std::int32_t>(shape.shared_bytes);
  instance.tensor_maps = tensor_maps(gradient, shape, config);
  Declarations& members = instance.declarations;
  members.number("tile_n", config.tile_n, "positions of a tile");
  members.number("piece_out", shape.group.piece.out, "outputs of a piece");
  if (config.table != TableForm::attached) {
    members.number("blocks", gradient.layout.blocks(), "of dw");
    members.number("outputs", gradient.row_features(), "of dw and dy");
  }
  members.number("place_bytes", shape.group.place_bytes, "of a stage");
  declare_box(members, shape.box);
  members.number("operands", wgmma_operands_of(gradient.dtype), "ptx::WgmmaOperands");
  return instance;
}

}  // namespace

SddmmHaloShape sddmm_halo_shape(const Sddmm& gradient, const Config& config) {
  const GroupShape group = group_shape(gradient, config);
  check_numbers(config, group);
  const HaloBox box(gradient.convolution, false, config.tile_n);
  check_box(config, box);
  const std::int32_t pairs = config.rows / (2 * kMultiplying);
  return {.threads = 32 * kGroupedWarps,
          .pairs = pairs,
          .sums = group.piece.out / 2 * pairs,
          .group = group,
          .box = box,
          .shared_bytes = config.stages * group.place_bytes};
}

extern const SddmmFamily kSddmmHalo;
const SddmmFamily kSddmmHalo{Variant::halo,     "sddmm_halo", Arithmetic::tensor_cores, validate, instantiate,
                             &kSddmmHaloTuning, "sm_90a"};

}  // namespace sparsekiln::cuda
