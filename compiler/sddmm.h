#pragma once

#include <cstdint>

#include <sparsekiln/problem.h>

namespace sparsekiln {

/// A sampled dense-dense product: dw[out, in] = Σ over pairs of dy[n, out]ᵀ · x[n, in], on the blocks of a
/// layout alone. What `grad_weight` is, and all that a compiler of it asks of a Problem. The members of
/// Computation mean the same of it; cuts are the Problem's.
struct Sddmm : Computation {
  /// Throws `invalid_argument` for products with the weight, which compiler/spmm.h is about.
  explicit Sddmm(const Problem& problem);

  Layout layout;
  std::int64_t cut_in = 0;   ///< of x's features, as Problem::cut_in_features
  std::int64_t cut_out = 0;  ///< of dy's

  [[nodiscard]] std::int64_t in_features() const {
    return cut_in != 0 ? cut_in : std::int64_t{layout.cols()} * block.in;
  }
  [[nodiscard]] std::int64_t out_features() const {
    return cut_out != 0 ? cut_out : std::int64_t{layout.rows()} * block.out;
  }
  [[nodiscard]] std::int64_t block_elements() const { return std::int64_t{block.out} * block.in; }
};

}  // namespace sparsekiln
