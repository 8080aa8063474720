#pragma once

#include <cstdint>
#include <memory>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>

#include "compiler/block_scales.h"
#include "compiler/correlation.h"

namespace sparsekiln {

/// A sampled dense-dense product: dw[out, in] = Σ over pairs of dy[n, out]ᵀ · x[n, in], on the blocks of a
/// layout alone. What `grad_weight` is, and all that a compiler of it asks of a Problem. The members of
/// Computation mean the same of it; cuts are the Problem's.
///
/// For a convolution, each column of the layout is a block of x's features together with a tap, and x is
/// displaced by that tap. The taps of a block are neighbours. For a transposed one x and dy change places:
/// rows of the layout are of x's features, columns of dy's, and dy is displaced.
struct Sddmm : Computation {
  /// Throws `invalid_argument` for products with the weight, which compiler/spmm.h is about.
  explicit Sddmm(const Problem& problem);

  Layout layout;
  std::int64_t cut_in = 0;   ///< of x's features, as Problem::cut_in_features
  std::int64_t cut_out = 0;  ///< of dy's
  /// The correlation of forward, or of grad_input of a transposed convolution: it reads what is displaced,
  /// for the positions of what is not. Null: a linear layer.
  std::shared_ptr<const Correlation> correlation;
  BlockScales block_scale_map;  ///< where there are block scales
  /// Where the operands of a launch are channels-first, and what is computed here is of rows, as on_rows has
  /// it: the alignment of those. Otherwise 0.
  std::int32_t image_alignment = 0;

  /// Whether the columns of the layout are of dy's features and its rows of x's.
  [[nodiscard]] bool exchanged() const { return convolution.transposed; }
  /// Blocks of the features that columns are of.
  [[nodiscard]] std::int32_t in_blocks() const {
    return correlation ? layout.cols() / correlation->kernel_taps : layout.cols();
  }
  /// The cut of the features that columns are of, and rows.
  [[nodiscard]] std::int64_t cut_cols() const { return exchanged() ? cut_out : cut_in; }
  [[nodiscard]] std::int64_t cut_rows() const { return exchanged() ? cut_in : cut_out; }
  /// Those features.
  [[nodiscard]] std::int64_t col_features() const {
    return cut_cols() != 0 ? cut_cols() : std::int64_t{in_blocks()} * block.in;
  }
  [[nodiscard]] std::int64_t row_features() const {
    return cut_rows() != 0 ? cut_rows() : std::int64_t{layout.rows()} * block.out;
  }
  [[nodiscard]] std::int64_t in_features() const { return exchanged() ? row_features() : col_features(); }
  [[nodiscard]] std::int64_t out_features() const { return exchanged() ? col_features() : row_features(); }
  /// Rows of x, and of dy, for a batch of n.
  [[nodiscard]] std::int64_t x_rows(std::int64_t n) const { return input_rows(n); }
  [[nodiscard]] std::int64_t dy_rows(std::int64_t n) const { return output_rows(n); }
  /// Whether the rows of both operands are not the same: a convolution's, unless it is a linear layer of all
  /// positions.
  [[nodiscard]] bool gathers() const { return correlation && !correlation->pointwise(); }
  /// Rows of what is computed: points of a convolution's lattice.
  [[nodiscard]] std::int64_t product_rows(std::int64_t n) const { return n * rows_of_one(); }
  [[nodiscard]] std::int64_t rows_of_one() const {
    return correlation ? correlation->image_lattice_points() : 1;
  }
  /// product_rows as chunks of config.tile_n rows count them: in variant halo those of an image are
  /// rectangles, of which the last ones may reach beyond it.
  [[nodiscard]] std::int64_t tiled_rows(std::int64_t n, const Config& config) const {
    if (correlation && config.variant == Variant::halo)
      return n * correlation->rectangles(config.tile_n, kHaloTileWidth) * config.tile_n;
    return product_rows(n);
  }
  /// Rows of what taps displace.
  [[nodiscard]] std::int64_t displaced_rows(std::int64_t n) const {
    return correlation ? n * correlation->input_positions() : n;
  }
  /// Whether dblock_scales sums over several blocks of dw, the taps of one of the layout, which different
  /// workers may compute: each writes a sum for each block to the workspace, and a pass after adds these in
  /// ascending order.
  [[nodiscard]] bool sums_block_scales_of_taps() const {
    return block_scale_gradient && block_scale_map.shared();
  }
  [[nodiscard]] std::int64_t block_elements() const { return std::int64_t{block.out} * block.in; }
};

}  // namespace sparsekiln
