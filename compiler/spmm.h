#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>

#include "compiler/block_scales.h"
#include "compiler/correlation.h"

namespace sparsekiln {

/// A product of dense activations with a block-sparse matrix B, y[n, out] = x[n, in] · B[out, in]ᵀ: what
/// `forward` and `grad_input` both are, and all that a compiler of them asks of a Problem.
///
/// For a transposed convolution the two change places: its forward is by columns, its gradient is not.
///
///              x        y         B
///   forward    x[n,in]  y[n,out]  W
///   grad_input dy[n,out] dx[n,in] Wᵀ, whose blocks are in memory as W's are: their columns are contiguous
///
/// The members of Computation mean the same of the product: a block has block.out of y's features and
/// block.in of x's.
///
/// A convolution is the product with a matrix whose columns are pairs of a block of x's features and a tap,
/// features first, and x displaced by that tap. Its rows are pairs of a class (compiler/correlation.h) and a
/// block of y's features, classes first.
struct Spmm : Computation {
  /// Implicit: a Problem can be passed where its SpMM is wanted. Throws `invalid_argument` for grad_weight,
  /// which is none.
  Spmm(const Problem& problem);  // NOLINT(google-explicit-constructor)

  /// W's: of a convolution [out][in and tap], with a block for each tap; of an LSTM's cell the rows of its
  /// four weights one after the other.
  Layout weight;
  Layout layout;             ///< B's
  std::int64_t cut_in = 0;   ///< of x's features, as Problem::cut_in_features
  std::int64_t cut_out = 0;  ///< of y's
  /// A convolution's; null: a linear layer.
  std::shared_ptr<const Correlation> correlation;
  /// What block_of_weight gives for a convolution by columns.
  std::vector<std::int32_t> numbers;
  BlockScales block_scale_map;  ///< where there are block scales
  /// Where the operands of a launch are channels-first, and what is computed here is of rows, as on_rows has
  /// it: the alignment of those. Otherwise 0.
  std::int32_t image_alignment = 0;

  /// Epilogue::layer_norm and what belongs to it: what a pass of the launch makes of y when all of the
  /// product is there. `epilogue` is then that of the product alone, and y its sums: of a gradient in
  /// float32, whatever the type of its result.
  std::optional<Epilogue> normalisation;
  /// The type of what the launch computes in the end, and of what it reads for that: Problem's out_dtype.
  /// Only y's, `out_dtype`, may be another one.
  DType result_dtype = DType::f32;

  /// Whether y is no result, but of a wider type: then it is in the workspace of the launch.
  [[nodiscard]] bool has_sums_in_workspace() const { return out_dtype != result_dtype; }
  /// Workspace::sums_of_one, where the pass that finishes them needs room for so many groups in a row.
  [[nodiscard]] std::int64_t bytes_of_sums(std::int32_t groups) const {
    constexpr std::int64_t kLine = 64;
    if (!has_sums_in_workspace()) return 0;
    const std::int64_t row = groups * normalised_features() * static_cast<std::int64_t>(size_of(out_dtype));
    return (row + kLine - 1) / kLine * kLine;
  }

  /// Computation::normalised_groups of the problem.
  [[nodiscard]] std::int32_t groups_of_sums() const { return normalisation && normalisation->lstm ? 4 : 1; }

  /// Features per normalised group: of y, or of one gate of dx.
  [[nodiscard]] std::int64_t normalised_features() const {
    return out_features() / (operation == Operation::forward ? groups_of_sums() : 1);
  }
  /// Weights of B's layout that x is multiplied with: 2 of a glu pair, 4 of an LSTM's cell, whose gradient
  /// has one B of all four.
  [[nodiscard]] std::int32_t weights() const {
    return epilogue.glu ? 2 : operation == Operation::forward ? gates_of_cell() : 1;
  }
  /// Features of y in memory: of an LSTM's gradient those of four gates for each that is summed.
  [[nodiscard]] std::int64_t y_features() const {
    return out_features() * (operation == Operation::grad_input ? gates_of_cell() : 1);
  }
  /// A block of B is in column-major order, [in][out]; else in row-major order, [out][in].
  [[nodiscard]] bool by_columns() const {
    return (operation == Operation::grad_input) != convolution.transposed;
  }
  /// W's.
  [[nodiscard]] BlockShape weight_block() const {
    return by_columns() ? BlockShape{block.in, block.out} : block;
  }
  /// The number that W gives to a block of B.
  [[nodiscard]] std::int32_t block_of_weight(std::int32_t number) const {
    const auto place = static_cast<std::size_t>(number);
    return !by_columns() ? number : correlation ? numbers[place] : weight.block_of()[place];
  }
  /// Blocks of x's features, and of y's.
  [[nodiscard]] std::int32_t in_blocks() const {
    return correlation ? layout.cols() / correlation->kernel_taps : layout.cols();
  }
  [[nodiscard]] std::int32_t out_blocks() const {
    return correlation ? layout.rows() / static_cast<std::int32_t>(correlation->classes.size())
                       : layout.rows();
  }
  [[nodiscard]] std::int64_t in_features() const {
    return cut_in != 0 ? cut_in : std::int64_t{in_blocks()} * block.in;
  }
  [[nodiscard]] std::int64_t out_features() const {
    return cut_out != 0 ? cut_out : std::int64_t{out_blocks()} * block.out;
  }
  /// Rows of x, and of y, for a batch of n.
  [[nodiscard]] std::int64_t x_rows(std::int64_t n) const {
    return correlation ? n * correlation->input_positions() : n;
  }
  [[nodiscard]] std::int64_t y_rows(std::int64_t n) const {
    return correlation ? n * correlation->output_positions() : n;
  }
  /// The positions of an image of its x, and of y; else 0.
  [[nodiscard]] std::int64_t x_image() const { return channels_first() ? correlation->input_positions() : 0; }
  [[nodiscard]] std::int64_t y_image() const {
    return channels_first() ? correlation->output_positions() : 0;
  }
  /// Contiguous elements of x, and of y, in memory.
  [[nodiscard]] std::int64_t x_row_length(std::int64_t n) const {
    if (channels_first()) return in_features() * x_image();
    return feature_major() ? n : in_features();
  }
  [[nodiscard]] std::int64_t y_row_length(std::int64_t n) const {
    if (channels_first()) return out_features() * y_image();
    return feature_major() ? n : y_features();
  }
  /// Whether x, or W, is changed or rearranged before it is multiplied.
  [[nodiscard]] bool changes_x() const {
    return feature_major() || block_scales || derivative != Activation::none || cut_in != 0;
  }
  /// Images of a convolution that share a tile on the cpu.
  [[nodiscard]] std::int64_t images_of_tile(std::int32_t tile_n) const;
  /// Tiles of config.tile_n rows, or points of the lattice of a convolution, that a batch of n is computed
  /// in. A cpu's go in linear order, and end with an image; others leave out the points that are no y's.
  [[nodiscard]] std::int64_t batch_tiles(std::int64_t n, const Config& config) const {
    if (correlation && config.variant == Variant::vector) {
      const std::int64_t images = images_of_tile(config.tile_n);
      return (n + images - 1) / images * correlation->tiles(config.tile_n);
    }
    return (n * tiled_rows_of_one(config) + config.tile_n - 1) / config.tile_n;
  }
  /// rows_of_one as tiles of config.tile_n rows count them: in variant halo those of an image are rectangles,
  /// of which the last ones may reach beyond it.
  [[nodiscard]] std::int64_t tiled_rows_of_one(const Config& config) const {
    if (correlation && config.variant == Variant::halo)
      return correlation->rectangles(config.tile_n, kHaloTileWidth) * config.tile_n;
    return rows_of_one();
  }
  /// Whether rows of x are not those of y: a convolution's, unless it is a linear layer of all positions.
  [[nodiscard]] bool gathers() const { return correlation && !correlation->pointwise(); }
  /// Rows of the product: points of a convolution's lattice.
  [[nodiscard]] std::int64_t product_rows(std::int64_t n) const { return n * rows_of_one(); }
  [[nodiscard]] std::int64_t rows_of_one() const {
    return correlation ? correlation->image_lattice_points() : 1;
  }
  /// Whether every tile of so many rows has all of them, and they are neighbours in x.
  [[nodiscard]] bool has_whole_tiles(std::int32_t tile_n) const {
    return !gathers() && !batch.dynamic() && !convolution.dynamic &&
           product_rows(batch.bound()) % tile_n == 0;
  }
  /// Multiplications and additions on present blocks for a batch of n, with one of the weights.
  [[nodiscard]] double flops(std::int64_t n) const {
    return 2.0 * static_cast<double>(layout.blocks()) * block.out * block.in *
           static_cast<double>(product_rows(n));
  }
};

/// Bytes of what an LSTM's cell, layer normalisation, or their gradients read and write besides y and the
/// residual, each operand once, for each output of the product. 0: there is neither, as of a Spmm with
/// `normalisation`, whose epilogue is that of the product.
[[nodiscard]] double cell_bytes(const Computation& what);

/// The layout of the weights of an LSTM's cell as one weight, the rows of one after those of another.
[[nodiscard]] Layout of_all_gates(const Layout& layout, const Computation& what);

/// The layout of a convolution's weight, with a block for each tap that a block has: those of one block are
/// neighbours in a row.
[[nodiscard]] Layout with_taps(const Layout& features, const Convolution& convolution);

}  // namespace sparsekiln
