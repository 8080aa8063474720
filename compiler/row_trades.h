#pragma once

#include <cstdint>
#include <vector>

#include <sparsekiln/layout.h>

#include "compiler/pattern_rows.h"

namespace sparsekiln::patterns {

/// The columns of a row: those that it keeps, and those that it may trade. Both are ascending, and no column
/// is in both.
struct TradedRow {
  Indices fixed;
  Indices free;
};

/// Redistributes the free blocks at random, so that the lengths of rows and columns stay as they are: trades
/// of the Curveball algorithm (Strona et al. 2014, "A fast and unbiased procedure to randomize ecological
/// binary matrices with fixed row and column totals") in rounds which pair every row with another (Carstens,
/// Berger & Strona 2018, global trades). `traders` are the rows that take part.
void trade_at_random(std::vector<TradedRow>& grid, const Indices& traders, SplitMix64& random);

[[nodiscard]] Layout layout_of(const std::vector<TradedRow>& grid, std::int64_t cols);

}  // namespace sparsekiln::patterns
