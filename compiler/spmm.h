#pragma once

#include <cstdint>

#include <sparsekiln/problem.h>

namespace sparsekiln {

/// A product of dense activations with a block-sparse matrix B, y[n, out] = x[n, in] · B[out, in]ᵀ: what
/// `forward` and `grad_input` both are, and all that a compiler of them asks of a Problem.
///
///              x        y         B
///   forward    x[n,in]  y[n,out]  W
///   grad_input dy[n,out] dx[n,in] Wᵀ, whose blocks are in memory as W's are: their columns are contiguous
///
/// The members of Computation mean the same of the product: a block has block.out of y's features and
/// block.in of x's.
struct Spmm : Computation {
  /// Implicit: a Problem can be passed where its SpMM is wanted. Throws `invalid_argument` for grad_weight,
  /// which is none.
  Spmm(const Problem& problem);  // NOLINT(google-explicit-constructor)

  Layout weight;             ///< W's
  Layout layout;             ///< B's
  std::int64_t cut_in = 0;   ///< of x's features, as Problem::cut_in_features
  std::int64_t cut_out = 0;  ///< of y's

  /// Weights that x is multiplied with: 2 of a glu pair.
  [[nodiscard]] std::int32_t weights() const { return epilogue.glu ? 2 : 1; }
  /// A block of B is in column-major order, [in][out]; else in row-major order, [out][in].
  [[nodiscard]] bool by_columns() const { return operation == Operation::grad_input; }
  /// W's.
  [[nodiscard]] BlockShape weight_block() const {
    return by_columns() ? BlockShape{block.in, block.out} : block;
  }
  /// The number that W gives to a block of B.
  [[nodiscard]] std::int32_t block_of_weight(std::int32_t number) const {
    return by_columns() ? weight.block_of()[static_cast<std::size_t>(number)] : number;
  }
  [[nodiscard]] std::int64_t in_features() const {
    return cut_in != 0 ? cut_in : std::int64_t{layout.cols()} * block.in;
  }
  [[nodiscard]] std::int64_t out_features() const {
    return cut_out != 0 ? cut_out : std::int64_t{layout.rows()} * block.out;
  }
  /// Whether x, or W, is changed or rearranged before it is multiplied.
  [[nodiscard]] bool changes_x() const {
    return feature_major() || gates || derivative != Activation::none || cut_in != 0;
  }
  /// Multiplications and additions on present blocks for a batch of n.
  [[nodiscard]] double flops(std::int64_t n) const {
    return 2.0 * static_cast<double>(layout.blocks()) * block.out * block.in * static_cast<double>(n);
  }
};

}  // namespace sparsekiln
