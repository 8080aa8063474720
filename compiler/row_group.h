#pragma once

#include <cstdint>
#include <vector>

#include "compiler/row_sets.h"

namespace sparsekiln {

/// Puts rows that share columns into row groups of `size`, so that the number of columns that any of their
/// rows needs, summed over the row groups, is small. Returns the row at each place, row group by row group,
/// in ascending order within one; the last row group is filled up with kNoRow. Every row has one place. With
/// size 1, rows keep their order.
///
/// This is a greedy agglomeration over an inverted index, as in the row reordering of Labini, Bernaschi,
/// Nutt, Silvestri & Vella 2022 (Blocking Sparse Matrices to Leverage Dense-Specific Multiplication, after
/// Saad 2003): a row group takes the row that shares most columns with it. The row groups are ordered by the
/// mean of their columns: row groups that are computed at the same time then read neighboring columns, which
/// are in L2. If rows in their own order do as well, that order is kept. The result is deterministic. It
/// takes about O(sum of the squares of the columns' lengths): the rows of long columns are counted several at
/// once, and beyond a bound only the shorter columns are used. `searches`: it is then bettered by exchanges
/// (row_group_search.h).
[[nodiscard]] std::vector<std::int32_t> group_rows(const RowSets& sets, std::int32_t size,
                                                   bool searches = false);

/// The columns that each row group of an order from group_rows needs.
[[nodiscard]] RowSets unite(const RowSets& sets, const std::vector<std::int32_t>& order, std::int32_t size);

}  // namespace sparsekiln
