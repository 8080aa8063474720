#pragma once

#include <cstdint>

#include <sparsekiln/problem.h>

namespace sparsekiln {

/// A product of dense activations with a block-sparse matrix B, y[n, out] = x[n, in] · B[out, in]ᵀ: what
/// `forward` and `grad_input` both are, and all that a compiler of them asks of a Problem.
///
///              x        y         B
///   forward    x[n,in]  y[n,out]  W
///   grad_input dy[n,out] dx[n,in] Wᵀ, whose blocks lie in memory as W's do: their columns are contiguous
///
/// The members that Problem has as well mean the same of the product: the layout is B's, and a block has
/// block.out of y's features and block.in of x's.
struct Spmm {
  /// Implicit: whoever has a Problem has its product. Throws `invalid_argument` for grad_weight, which is
  /// none.
  Spmm(const Problem& problem);  // NOLINT(google-explicit-constructor)

  Operation operation;
  Layout weight;  ///< W's
  Layout layout;  ///< B's
  BlockShape block;
  Batch batch;
  DType dtype;      ///< of x and B
  DType out_dtype;  ///< of y
  Math math;
  ActivationOrder order;
  bool strict_absent;

  /// float32 products that only float32 arithmetic forms: not for tensor cores.
  [[nodiscard]] bool ieee() const { return dtype == DType::f32 && math == Math::ieee; }
  /// A block of B lies in memory column by column, [in][out]; else row by row, [out][in].
  [[nodiscard]] bool by_columns() const { return operation == Operation::grad_input; }
  /// W's.
  [[nodiscard]] BlockShape weight_block() const {
    return by_columns() ? BlockShape{block.in, block.out} : block;
  }
  /// The number that W gives to a block of B.
  [[nodiscard]] std::int32_t block_of_weight(std::int32_t number) const {
    return by_columns() ? weight.block_of()[static_cast<std::size_t>(number)] : number;
  }
  [[nodiscard]] std::int64_t in_features() const { return std::int64_t{layout.cols()} * block.in; }
  [[nodiscard]] std::int64_t out_features() const { return std::int64_t{layout.rows()} * block.out; }
  /// Multiplications and additions on present blocks for a batch of n.
  [[nodiscard]] double flops(std::int64_t n) const {
    return 2.0 * static_cast<double>(layout.blocks()) * block.out * block.in * static_cast<double>(n);
  }
};

}  // namespace sparsekiln
