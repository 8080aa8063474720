#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <llvm/IR/Value.h>
#include <sparsekiln/config.h>

#include "compiler/block_runs.h"
#include "compiler/cpu/layout_data.h"
#include "compiler/cpu/level.h"
#include "compiler/sddmm.h"

namespace sparsekiln::cpu {

/// Which side of dw a panel is of: its columns, which are x's features, or its rows, which are dy's; of a
/// transposed convolution the other way round.
enum class SddmmSide : std::uint8_t { x, dy };

/// x or dy as the register tiles read it: *panels* of a block's features, or of 64 where a block is wider, as
/// float32, [batch row][feature], what a derivative does to dy done.
struct PanelSide {
  SddmmSide side = SddmmSide::x;
  bool of_dy = false;            ///< the operand that it holds is dy
  bool in_place = false;         ///< rows are the operand's, also of the side that a convolution displaces
  std::int32_t width = 0;        ///< features of a panel
  std::int32_t block_width = 0;  ///< features of a block: one panel, or several
  bool cut = false;              ///< the last block has features that the operand has not
  [[nodiscard]] std::int32_t panels_of_block() const { return block_width / width; }
  /// Which number of the layout says how many features the operand has, and panels all blocks.
  [[nodiscard]] LayoutNumber features() const {
    return of_dy ? LayoutNumber::out_features : LayoutNumber::in_features;
  }
  [[nodiscard]] LayoutNumber panels() const {
    return side == SddmmSide::x ? LayoutNumber::x_panels : LayoutNumber::dy_panels;
  }
  /// Bytes from one batch row to the next in a panel.
  [[nodiscard]] std::int64_t row_bytes() const { return std::int64_t{4} * width; }
};

/// Sums that are held in registers: `vectors` of x's features for each of some of dy's.
struct SddmmTile {
  std::int32_t vectors = 1;
  std::vector<std::int32_t> outputs;  ///< of each tile of a panel of dy, in order
};

/// The numbers of one entry of a gradient of the weight which do not depend on the layout.
struct SddmmGeometry {
  SddmmGeometry(const Sddmm& gradient, const Level& level, const Config& config);

  std::shared_ptr<const Correlation> correlation;  ///< of a convolution; null: a linear layer
  DType dtype;
  DType out_dtype;
  BlockShape block;
  ActivationOrder order;
  bool channels_first;  ///< as Computation's
  Activation derivative;
  std::int32_t alignment;  ///< of activations, bytes
  bool scale;
  bool block_scales;
  bool bias_gradient;
  bool block_scale_gradient;
  std::int32_t blocks_per_scale;  ///< blocks of dw that a block scale multiplies; 0: kScaleOfBlock says which
  bool sums_block_scales_of_taps;  ///< as Sddmm's: sums of each block are in front of the workspace's panels
  PanelSide x;
  PanelSide dy;
  PanelSide bias;           ///< dy's, as the gradient of the bias sums it
  std::int32_t chunk;       ///< batch rows whose panels are in L1 while register tiles go over them
  std::int32_t lanes;       ///< of a vector: those of the level, or a block's features where they are fewer
  std::int32_t most_sums;   ///< vectors, of a register tile
  std::int32_t run_blocks;  ///< the most of a run
  /// Panels of all of x and dy are made once, by a pass of its own, in the workspace; else each
  /// worker makes those of a chunk on its stack.
  bool packed;
  /// dw goes past the caches, of a layout where it is more than they hold and would only be read to be
  /// overwritten: LayoutNumber::streams.
  bool streams;
  /// dw goes past the caches, as with `streams`, in the outer product of a batch of one, which is not
  /// accumulated by tiles.
  bool streams_products;
  /// The products of a batch of one are rounded to bf16 by multiply-adds where a layout has many of them
  /// (LayoutNumber::many_products) and operands are neither too large nor too small: see
  /// SddmmPass::exact_products.
  bool exact_products;

  /// The panels of x of a convolution have a row for each point of its lattice that is read, image by image
  /// and phase by phase, of zeros outside of x; those of dy one for each position. A *line* is a row of y's
  /// positions, whose points are neighbours in both.
  [[nodiscard]] std::int64_t chunk_lines() const {
    return std::max<std::int64_t>(1, chunk / correlation->points[2]);
  }
  /// The most of a launch, whose panels the workspace holds.
  [[nodiscard]] std::int64_t most_pairs() const {
    return correlation ? 1 : static_cast<std::int64_t>(kMostPairs);
  }
  /// Rows of the panels of a side for one of a batch; of a dynamic convolution, for the largest images.
  [[nodiscard]] std::int64_t rows_of_entry(SddmmSide side) const {
    if (!correlation) return 1;
    return side == SddmmSide::x ? correlation->image_points() : correlation->output_positions();
  }
  /// The gradient of the bias sums dy as it is in memory, because panels of what is displaced may lack
  /// positions.
  [[nodiscard]] bool bias_of_columns() const { return bias.side == SddmmSide::x; }

  [[nodiscard]] std::int64_t block_elements() const { return std::int64_t{block.out} * block.in; }
  /// Features of x that the register tiles of a run of `blocks` blocks go over together.
  [[nodiscard]] std::int32_t run_width(std::int32_t blocks) const { return blocks * x.width; }
  /// The tile of a run of `blocks` blocks: as many sums as the registers hold.
  [[nodiscard]] SddmmTile tile(std::int32_t blocks) const;
};

/// The tables of one entry, as the current pass reads them: see SddmmTable.
struct SddmmTables {
  llvm::Value* worker_begin = nullptr;
  llvm::Value* runs = nullptr;
  llvm::Value* columns = nullptr;
  llvm::Value* stretches = nullptr;
  llvm::Value* stretch_begin = nullptr;
  llvm::Value* places = nullptr;  ///< null: a linear layer
};

/// What the code of an entry takes of its layout.
[[nodiscard]] LayoutData sddmm_data(const Sddmm& gradient, const SddmmGeometry& geometry,
                                    const BlockRuns& schedule);
inline constexpr std::int32_t kRunFields = 4;
inline constexpr std::int32_t kStretchFields = 3;

/// The largest Config::rows: runs of each length have code of their own.
inline constexpr std::int32_t kMostRunBlocks = 4;
/// Features of a panel where blocks are wider.
inline constexpr std::int32_t kMostPanelWidth = 64;

}  // namespace sparsekiln::cpu
