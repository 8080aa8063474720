// The patterns with random draws. What each draws, and in which order, decides the layouts that a seed gives.
// A change here changes what users measured and stored, and is detected by the golden digests of
// tests/compiler/patterns_test.cpp.

#include <sparsekiln/patterns.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compiler/pattern_rows.h"

namespace sparsekiln::patterns {

namespace {

using Indices = std::vector<std::int32_t>;

/// Grows a layout by whole rows, whose columns may come in any order.
class RowList {
 public:
  void add(Indices& columns) {
    std::sort(columns.begin(), columns.end());
    col_.insert(col_.end(), columns.begin(), columns.end());
    crow_.push_back(static_cast<std::int32_t>(col_.size()));
  }

  [[nodiscard]] Layout layout(std::int64_t cols) && {
    const auto rows = std::ssize(crow_) - 1;
    return Layout::from_csr(rows, cols, std::move(crow_), std::move(col_));
  }

 private:
  Indices crow_{0};
  Indices col_;
};

/// Fisher–Yates, from the end.
void shuffle(Indices& values, SplitMix64& random) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[draw_below(random, i)]);
}

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

/// Redistributes at random the columns that only one of two rows has, so that neither the lengths of the rows
/// nor those of the columns change: one trade of the Curveball algorithm (Strona et al. 2014). The rows are,
/// and stay, ascending.
void trade(Indices& a, Indices& b, SplitMix64& random) {
  Indices both;
  Indices only_one;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  std::set_symmetric_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(only_one));
  shuffle(only_one, random);
  const auto cut = only_one.begin() + (std::ssize(a) - std::ssize(both));
  std::sort(only_one.begin(), cut);
  std::sort(cut, only_one.end());
  a.clear();
  b.clear();
  std::merge(both.begin(), both.end(), only_one.begin(), cut, std::back_inserter(a));
  std::merge(both.begin(), both.end(), cut, only_one.end(), std::back_inserter(b));
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

Layout balanced_random(std::int64_t rows, std::int64_t cols, double density, std::uint64_t seed) {
  const std::int64_t blocks = blocks_of(rows, cols, density);
  SplitMix64 generator(seed);
  const Indices row_order = shuffled_sequence(rows, generator);
  const Indices col_order = shuffled_sequence(cols, generator);

  // Dealing the columns in rotation gives every row and every column its number of blocks, within one.
  std::vector<Indices> grid(static_cast<std::size_t>(rows));
  std::int64_t dealt = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    Indices& row = grid[row_order[i]];
    for (const std::int64_t end = (i + 1) * blocks / rows; dealt < end; ++dealt)
      row.push_back(col_order[dealt % cols]);
    std::sort(row.begin(), row.end());
  }

  // Trades between random pairs of rows keep all counts and remove the order of the dealing (Carstens, Berger
  // & Strona 2018, global trades: each round pairs every row with another).
  constexpr int kRounds = 16;
  for (int round = 0; round < kRounds; ++round) {
    const Indices order = shuffled_sequence(rows, generator);
    for (std::int64_t i = 0; i + 1 < rows; i += 2) trade(grid[order[i]], grid[order[i + 1]], generator);
  }

  RowList list;
  for (Indices& row : grid) list.add(row);
  return std::move(list).layout(cols);
}

Layout watts_strogatz(std::int64_t rows, std::int64_t cols, double density, double rewire,
                      std::uint64_t seed) {
  const std::int64_t blocks = blocks_of(rows, cols, density);
  check_fraction("rewire", rewire);
  SplitMix64 generator(seed);
  const Bernoulli rewired(rewire);
  FreeColumns free(cols);
  RowList list;
  Indices columns;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t length = (row + 1) * blocks / rows - row * blocks / rows;
    // The run is centered on the scaled diagonal, at (row + 1/2) · cols / rows, and wraps around the ring of
    // columns.
    const std::int64_t twice_first = (2 * row + 1) * cols - length * rows + 2 * rows * cols;
    const std::int64_t first = twice_first / (2 * rows) % cols;
    columns.clear();
    for (std::int64_t k = 0; k < length; ++k)
      columns.push_back(static_cast<std::int32_t>((first + k) % cols));
    if (length < cols) {
      free.start(columns, length + 1);
      for (std::int32_t& column : columns)
        if (rewired(generator)) column = free.exchange(column, generator);
    }
    list.add(columns);
  }
  return std::move(list).layout(cols);
}

Layout barabasi_albert(std::int64_t size, std::int64_t edges, bool diagonal, std::uint64_t seed) {
  check_extent("size", size);
  check_range("edges", edges, 0, size - 1);
  check_blocks(2 * edges * (size - edges) + (diagonal ? size : 0));
  SplitMix64 generator(seed);
  std::vector<Indices> grid(static_cast<std::size_t>(size));
  Indices ends;  // each node as often as it has edges, so that a uniform draw prefers nodes with many
  ends.reserve(static_cast<std::size_t>(2 * edges * (size - edges)));
  Indices targets(static_cast<std::size_t>(edges));
  std::iota(targets.begin(), targets.end(),
            0);  // the first new node is joined to all that stand at the start
  std::vector<std::int32_t> chosen_by(static_cast<std::size_t>(size), -1);
  for (auto node = static_cast<std::int32_t>(edges); node < size && edges > 0; ++node) {
    for (const std::int32_t target : targets) {
      grid[node].push_back(target);
      grid[target].push_back(node);
      ends.push_back(target);
      ends.push_back(node);
    }
    for (std::int32_t& target : targets) {
      do {
        target = ends[draw_below(generator, ends.size())];
      } while (chosen_by[target] == node);
      chosen_by[target] = node;
    }
  }
  RowList list;
  for (std::int32_t node = 0; node < size; ++node) {
    if (diagonal) grid[node].push_back(node);
    list.add(grid[node]);
  }
  return std::move(list).layout(size);
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
