#include "compiler/cpu/weight_gradient_geometry.h"

#include <algorithm>

namespace sparsekiln::cpu {
namespace {

/// Of dw: a processor's last level of cache holds less, or has better use for it.
constexpr std::int64_t kStreamedBytes = std::int64_t{16} << 20;

/// The most of a register tile's row.
constexpr std::int32_t kRowVectors = 4;

/// Vector registers of 16 hold twelve sums, three words that are broadcast and one vector; where
/// multiply-adds are two instructions, products need some too. AVX-512 has 32.
std::int32_t most_sums(const Level& level) {
  if (level.lanes == 16) return 24;
  return level.fused ? 12 : 8;
}

PanelSide side_of(GradientSide side, std::int64_t features, std::int32_t block_width, std::int64_t blocks) {
  PanelSide result;
  result.side = side;
  result.features = features;
  result.block_width = block_width;
  result.width = std::min(block_width, kMostPanelWidth);
  result.panels = blocks * result.panels_of_block();
  return result;
}

/// `total` in the fewest shares of at most `most`, the large ones first.
std::vector<std::int32_t> shares(std::int32_t total, std::int32_t most) {
  const std::int32_t count = (total + most - 1) / most;
  std::vector<std::int32_t> result;
  for (std::int32_t i = 0; i < count; ++i) result.push_back((total + count - 1 - i) / count);
  return result;
}

}  // namespace

GradientGeometry::GradientGeometry(const Sddmm& gradient, const Level& level, const Config& config,
                                   std::int64_t most_entries, std::int32_t schedule_workers)
    : dtype(gradient.dtype),
      out_dtype(gradient.out_dtype),
      block(gradient.block),
      order(gradient.order),
      derivative(gradient.derivative),
      alignment(gradient.alignment),
      scale(gradient.epilogue.scale),
      gates(gradient.gates),
      bias_gradient(gradient.bias_gradient),
      gate_gradient(gradient.gate_gradient),
      x(side_of(GradientSide::x, gradient.in_features(), block.in, gradient.layout.cols())),
      dy(side_of(GradientSide::dy, gradient.out_features(), block.out, gradient.layout.rows())),
      chunk(config.tile_n),
      lanes(std::min(level.lanes, block.in)),
      most_sums(cpu::most_sums(level)),
      run_blocks(config.rows),
      workers(schedule_workers),
      packed(config.stages > 1) {
  const std::int64_t dw_bytes =
      gradient.layout.blocks() * block_elements() * static_cast<std::int64_t>(size_of(out_dtype));
  // Stores of whole rows of blocks follow each other. Parts of lines that wait for their rest would be
  // written one by one.
  const bool whole_rows = block.in / lanes <= kRowVectors;
  const bool large = level.name.starts_with("x86-64") && dw_bytes >= kStreamedBytes &&
                     lanes * static_cast<std::int32_t>(size_of(out_dtype)) >= 16;
  streams = large && whole_rows;
  streams_products = large && !packed;
  const bool bare =
      !scale && !gates && !gate_gradient && derivative == Activation::none && !x.cut() && !dy.cut();
  // Each worker looks at all of x and dy, which must be little beside what it stores.
  const bool many = gradient.layout.blocks() * block_elements() > workers * (x.features + dy.features);
  exact_products = dtype == DType::bf16 && out_dtype == DType::bf16 && !packed && bare && many &&
                   order == ActivationOrder::batch_major;
  if (packed)
    workspace.bytes_per_tile = static_cast<std::int64_t>(kMostPairs) * most_entries *
                               (x.panels * x.row_bytes() + dy.panels * dy.row_bytes());
}

GradientTile GradientGeometry::tile(std::int32_t blocks) const {
  const std::int32_t vectors = run_width(blocks) / lanes;
  GradientTile tile;
  tile.vectors = vectors % kRowVectors == 0 ? kRowVectors : vectors % 3 == 0 ? 3 : vectors % 2 == 0 ? 2 : 1;
  tile.outputs = shares(dy.width, most_sums / tile.vectors);
  return tile;
}

}  // namespace sparsekiln::cpu
