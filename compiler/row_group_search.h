#pragma once

#include <cstdint>
#include <vector>

#include "compiler/row_sets.h"

namespace sparsekiln {

/// Exchanges rows of row groups of `size` for one another, as long as that lets row groups need fewer
/// columns, or in the beginning one more at times, so that it does not end at the first order that no single
/// exchange betters: threshold accepting (Dueck & Scheuer 1990), of random exchanges from a fixed seed, in
/// whole numbers, so that every machine finds the same. `order` is as group_rows returns it, and stays so but
/// for the order of row groups and of rows within them. It takes some milliseconds, whatever the layout's
/// size: of large ones it tries less.
void search_row_groups(const RowSets& sets, std::vector<std::int32_t>& order, std::int32_t size);

}  // namespace sparsekiln
