// The random patterns. What each draws, and in which order, decides the layouts that a seed gives. A change
// here changes what users measured and stored, and is detected by the golden digests of
// tests/compiler/patterns_test.cpp.

#include <sparsekiln/patterns.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compiler/pattern_rows.h"
#include "compiler/row_trades.h"

namespace sparsekiln::patterns {

namespace {

Indices shuffled_sequence(std::int64_t size, SplitMix64& random) {
  Indices values(static_cast<std::size_t>(size));
  std::iota(values.begin(), values.end(), 0);
  shuffle(values, random);
  return values;
}

/// `count` distinct integers of [0, bound), ascending: Floyd's algorithm (Bentley & Floyd 1987), one draw
/// each.
std::vector<std::int64_t> sample(std::int64_t bound, std::int64_t count, SplitMix64& random) {
  std::unordered_set<std::int64_t> chosen;
  chosen.reserve(static_cast<std::size_t>(count));
  for (std::int64_t last = bound - count; last < bound; ++last) {
    const auto value = static_cast<std::int64_t>(draw_below(random, static_cast<std::uint64_t>(last) + 1));
    if (!chosen.insert(value).second) chosen.insert(last);
  }
  std::vector<std::int64_t> values(chosen.begin(), chosen.end());
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace

Layout random(std::int64_t rows, std::int64_t cols, double density, std::uint64_t seed) {
  const std::int64_t blocks = blocks_of(rows, cols, density);
  const std::int64_t cells = rows * cols;
  SplitMix64 generator(seed);
  // The present cells are drawn, or the absent ones if they are fewer.
  const bool invert = blocks > cells / 2;
  const auto drawn = sample(cells, invert ? cells - blocks : blocks, generator);
  Indices crow(static_cast<std::size_t>(rows) + 1);
  Indices col;
  col.reserve(static_cast<std::size_t>(blocks));
  auto next = drawn.begin();
  if (!invert) {
    for (const std::int64_t cell : drawn) {
      ++crow[cell / cols + 1];
      col.push_back(static_cast<std::int32_t>(cell % cols));
    }
  } else {
    for (std::int64_t cell = 0; cell < cells; ++cell) {
      if (next != drawn.end() && *next == cell) {
        ++next;
        continue;
      }
      ++crow[cell / cols + 1];
      col.push_back(static_cast<std::int32_t>(cell % cols));
    }
  }
  std::partial_sum(crow.begin(), crow.end(), crow.begin());
  return Layout::from_csr(rows, cols, std::move(crow), std::move(col));
}

Layout balanced_random(std::int64_t rows, std::int64_t cols, double density, std::uint64_t seed,
                       bool diagonal) {
  const std::int64_t blocks = blocks_of(rows, cols, density);
  if (diagonal) check_diagonal(rows, cols, blocks);
  SplitMix64 generator(seed);
  const Indices row_order = shuffled_sequence(rows, generator);
  std::vector<TradedRow> grid(static_cast<std::size_t>(rows));
  if (diagonal) {
    // A circulant of the nodes in that order. Rows that come first have one block more where it does not
    // come out even.
    for (std::int64_t i = 0; i < rows; ++i) {
      TradedRow& row = grid[row_order[i]];
      row.fixed.push_back(row_order[i]);
      const std::int64_t length = (blocks + rows - 1 - i) / rows;
      for (std::int64_t k = 1; k < length; ++k) row.free.push_back(row_order[(i + k) % cols]);
      std::sort(row.free.begin(), row.free.end());
    }
  } else {
    // Dealing the columns in rotation gives every row and every column its number of blocks, within one.
    const Indices col_order = shuffled_sequence(cols, generator);
    std::int64_t dealt = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      Indices& row = grid[row_order[i]].free;
      for (const std::int64_t end = (i + 1) * blocks / rows; dealt < end; ++dealt)
        row.push_back(col_order[dealt % cols]);
      std::sort(row.begin(), row.end());
    }
  }
  // Trades keep all counts and remove the order of the dealing.
  Indices all_rows(static_cast<std::size_t>(rows));
  std::iota(all_rows.begin(), all_rows.end(), 0);
  trade_at_random(grid, all_rows, generator);
  return layout_of(grid, cols);
}

Layout bigbird(std::int64_t size, std::int64_t window, std::int64_t global, std::int64_t random,
               std::uint64_t seed) {
  check_extent("size", size);
  check_range("random", random, 0, size);
  const Layout base = longformer(size, window, global);
  std::int64_t blocks = base.blocks();
  for (std::int32_t row = 0; row < size; ++row)
    blocks += std::min<std::int64_t>(random, size - std::ssize(base.row(row)));
  check_blocks(blocks);
  SplitMix64 generator(seed);
  FreeColumns free(size);
  RowList list;
  Indices columns;
  for (std::int32_t row = 0; row < size; ++row) {
    columns.assign(base.row(row).begin(), base.row(row).end());
    const std::int64_t further = std::min<std::int64_t>(random, size - std::ssize(columns));
    free.start(columns, std::ssize(columns) + further);
    for (std::int64_t k = 0; k < further; ++k) columns.push_back(free.take(generator));
    list.add(columns);
  }
  return std::move(list).layout(size);
}

}  // namespace sparsekiln::patterns
