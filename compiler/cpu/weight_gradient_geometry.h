#pragma once

#include <cstdint>
#include <vector>

#include <llvm/IR/Value.h>
#include <sparsekiln/binary.h>
#include <sparsekiln/config.h>

#include "compiler/block_runs.h"
#include "compiler/cpu/level.h"
#include "compiler/sddmm.h"

namespace sparsekiln::cpu {

/// Which operand of the gradient of the weight a panel holds.
enum class GradientSide : std::uint8_t { x, dy };

/// x or dy as the register tiles read it: *panels* of a block's features, or of 64 where a block is wider, as
/// float32, [batch entry][feature], what a derivative does to dy done.
struct PanelSide {
  GradientSide side = GradientSide::x;
  std::int64_t features = 0;     ///< of the operand, without what a block has beyond a cut edge
  std::int32_t width = 0;        ///< features of a panel
  std::int32_t block_width = 0;  ///< features of a block: one panel, or several
  std::int64_t panels = 0;       ///< of all blocks
  [[nodiscard]] std::int32_t panels_of_block() const { return block_width / width; }
  /// Whether the last block is cut.
  [[nodiscard]] bool cut() const { return features < panels * width; }
  /// Bytes from one batch entry to the next in a panel.
  [[nodiscard]] std::int64_t row_bytes() const { return std::int64_t{4} * width; }
};

/// Sums that are held in registers: `vectors` of x's features for each of some of dy's.
struct GradientTile {
  std::int32_t vectors = 1;
  std::vector<std::int32_t> outputs;  ///< of each tile of a panel of dy, in order
};

/// The numbers of one entry of a gradient of the weight.
struct GradientGeometry {
  GradientGeometry(const Sddmm& gradient, const Level& level, const Config& config, std::int64_t most_entries,
                   std::int32_t workers);

  DType dtype;
  DType out_dtype;
  BlockShape block;
  ActivationOrder order;
  Activation derivative;
  std::int32_t alignment;  ///< of activations, bytes
  bool scale;
  bool gates;
  bool bias_gradient;
  bool gate_gradient;
  PanelSide x;
  PanelSide dy;
  std::int32_t chunk;       ///< batch entries whose panels are in L1 while register tiles go over them
  std::int32_t lanes;       ///< of a vector: those of the level, or a block's features where they are fewer
  std::int32_t most_sums;   ///< vectors, of a register tile
  std::int32_t run_blocks;  ///< the most of a run
  std::int32_t workers;
  /// Panels of all of x and dy are made once, by a pass of its own, and lie in the workspace; else each
  /// worker makes those of a chunk on its stack.
  bool packed;
  /// dw goes past the caches: it is more than they hold, and would only be read to be overwritten.
  bool streams;
  /// Likewise of an only batch entry's outer product, which is not summed by tiles.
  bool streams_products;
  /// An only batch entry's products are rounded to bf16 by multiply-adds, where operands are neither too
  /// large nor too small: see WeightGradientPass::exact_products.
  bool exact_products;
  Workspace workspace;

  [[nodiscard]] std::int64_t block_elements() const { return std::int64_t{block.out} * block.in; }
  /// Features of x that the register tiles of a run of `blocks` blocks go over together.
  [[nodiscard]] std::int32_t run_width(std::int32_t blocks) const { return blocks * x.width; }
  /// The tile of a run of `blocks` blocks: as many sums as registers have room for.
  [[nodiscard]] GradientTile tile(std::int32_t blocks) const;
};

/// The constant tables of one entry, in the module.
struct GradientTables {
  llvm::Value* worker_begin;  ///< i32, workers + 1 offsets into runs
  llvm::Value* runs;          ///< i32, kRunFields each, in the order of block_runs.h's BlockRun
  llvm::Value* columns;       ///< i32, the block column of each block, by its number
  /// Neighbouring runs of a block row as one: i32, row, first block and the one behind the last.
  llvm::Value* stretches;
  llvm::Value* stretch_begin;  ///< i32, workers + 1 offsets into stretches
};
inline constexpr std::int32_t kRunFields = 4;
inline constexpr std::int32_t kStretchFields = 3;

/// Features of a panel where blocks are wider.
inline constexpr std::int32_t kMostPanelWidth = 64;

}  // namespace sparsekiln::cpu
