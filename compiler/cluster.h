#pragma once

#include <cstdint>
#include <vector>

#include <sparsekiln/layout.h>

namespace sparsekiln {

/// Rows of blocks, each the columns that it needs in ascending order: a layout, or one whose rows have been
/// put together. Row r needs cols[begin[r]] … cols[begin[r + 1]).
struct RowSets {
  std::int32_t columns = 0;  ///< all columns are below
  std::vector<std::int32_t> begin{0};
  std::vector<std::int32_t> cols;

  [[nodiscard]] std::int32_t rows() const { return static_cast<std::int32_t>(begin.size()) - 1; }
  [[nodiscard]] static RowSets of(const Layout& layout);
};

/// A position of a cluster that no row has.
inline constexpr std::int32_t kNoRow = -1;

/// Puts rows that share columns into clusters of `size`, so that the sum over the clusters of the columns
/// that any of their rows needs is small. Returns the row at each place, cluster by cluster, ascending within
/// one; the last cluster is filled up with kNoRow. Every row has one place. With size 1: the rows as they
/// are.
///
/// A greedy agglomeration over an inverted index, as in the row reordering of Labini, Bernaschi, Nutt,
/// Silvestri & Vella 2022 (Blocking Sparse Matrices to Leverage Dense-Specific Multiplication, after Saad
/// 2003): a cluster takes the row that shares most columns with it. The clusters are ordered by the mean of
/// their columns: clusters that run together then read adjacent columns, which are in L2. Where rows in their
/// own order do as well, they are left in it. Deterministic. About O(sum of the squares of the columns'
/// lengths): a long column's rows are counted some at once, and beyond a bound only the shorter columns are
/// looked at.
[[nodiscard]] std::vector<std::int32_t> cluster_rows(const RowSets& sets, std::int32_t size);

/// Sets of the clusters of an order that cluster_rows gave.
[[nodiscard]] RowSets unite(const RowSets& sets, const std::vector<std::int32_t>& order, std::int32_t size);

}  // namespace sparsekiln
