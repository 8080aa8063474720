// Watts–Strogatz and Barabási–Albert. What each draws, and in which order, decides the layouts that a seed
// gives; the golden digests of tests/compiler/patterns_test.cpp detect a change.

#include <sparsekiln/patterns.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "compiler/pattern_rows.h"
#include "compiler/row_trades.h"

namespace sparsekiln::patterns {
namespace {

/// A ring lattice of `blocks` blocks: each row is one run of columns around the scaled diagonal.
class RingLattice {
 public:
  RingLattice(std::int64_t rows, std::int64_t cols, std::int64_t blocks)
      : rows_(rows), cols_(cols), blocks_(blocks) {}

  /// Writes the columns of a row, in the order of the run.
  void read_row(std::int64_t row, Indices& columns) const {
    const std::int64_t length = (row + 1) * blocks_ / rows_ - row * blocks_ / rows_;
    // The run is centered on the scaled diagonal, at (row + 1/2) · cols / rows, and wraps around the ring of
    // columns.
    const std::int64_t twice_first = (2 * row + 1) * cols_ - length * rows_ + 2 * rows_ * cols_;
    const std::int64_t first = twice_first / (2 * rows_) % cols_;
    columns.clear();
    for (std::int64_t k = 0; k < length; ++k)
      columns.push_back(static_cast<std::int32_t>((first + k) % cols_));
  }

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  std::int64_t blocks_;
};

bool contains(const Indices& columns, std::int32_t column) {
  return std::find(columns.begin(), columns.end(), column) != columns.end();
}

/// The columns with more blocks than they shall have, or with fewer, each as often as it has too many or
/// lacks some. Columns shall have equally many blocks; where that does not come out even, the fullest have
/// one more.
std::pair<Indices, Indices> surplus_and_lack(const std::vector<Indices>& grid, std::int64_t cols) {
  std::vector<std::int64_t> populations(static_cast<std::size_t>(cols));
  for (const Indices& row : grid)
    for (const std::int32_t column : row) ++populations[column];
  const std::int64_t blocks = std::accumulate(populations.begin(), populations.end(), std::int64_t{0});
  Indices fullest(static_cast<std::size_t>(cols));
  std::iota(fullest.begin(), fullest.end(), 0);
  std::stable_sort(fullest.begin(), fullest.end(),
                   [&](std::int32_t a, std::int32_t b) { return populations[a] > populations[b]; });
  std::vector<std::int64_t> targets(populations.size(), blocks / cols);
  for (std::int64_t i = 0; i < blocks % cols; ++i) ++targets[fullest[i]];
  std::pair<Indices, Indices> result;
  for (std::int32_t column = 0; column < cols; ++column) {
    const std::int64_t surplus = populations[column] - targets[column];
    result.first.insert(result.first.end(), std::max<std::int64_t>(0, surplus), column);
    result.second.insert(result.second.end(), std::max<std::int64_t>(0, -surplus), column);
  }
  return result;
}

/// The row nearest to `row`, around the ring, that has a block in column `from` and none in column `to`.
/// There must be one.
std::int64_t nearest_row(const std::vector<Indices>& grid, std::int64_t row, std::int32_t from,
                         std::int32_t to) {
  const std::int64_t rows = std::ssize(grid);
  const auto fits = [&](std::int64_t i) { return contains(grid[i], from) && !contains(grid[i], to); };
  for (std::int64_t distance = 0;; ++distance) {
    const std::int64_t after = (row + distance) % rows;
    if (fits(after)) return after;
    const std::int64_t before = (row - distance + rows) % rows;
    if (fits(before)) return before;
  }
}

/// Moves as few blocks as possible, within their rows, until the populations of columns differ by at most
/// one.
void level_columns(std::vector<Indices>& grid, std::int64_t cols) {
  const auto [surplus, lack] = surplus_and_lack(grid, cols);
  for (std::size_t i = 0; i < surplus.size(); ++i) {
    // The first column has more blocks than the second, hence there is such a row. Both lists ascend, so that
    // the columns are near each other, and the search begins where the runs are.
    Indices& row = grid[nearest_row(grid, surplus[i] * std::ssize(grid) / cols, surplus[i], lack[i])];
    std::replace(row.begin(), row.end(), surplus[i], lack[i]);
  }
}

/// Nodes by how many edges they have.
class Degrees {
 public:
  explicit Degrees(const std::vector<Indices>& neighbors) : at_(neighbors.size()) {
    degree_.reserve(neighbors.size());
    for (const Indices& list : neighbors) {
      degree_.push_back(list.size());
      append(static_cast<std::int32_t>(degree_.size() - 1));
    }
  }

  /// One of the nodes with the fewest edges, uniformly.
  std::int32_t draw_least(SplitMix64& random) {
    while (nodes_[least_].empty()) ++least_;
    return nodes_[least_][draw_below(random, nodes_[least_].size())];
  }

  /// Notes a further edge of a node.
  void raise(std::int32_t node) {
    Indices& equals = nodes_[degree_[node]];
    equals[at_[node]] = equals.back();
    at_[equals.back()] = at_[node];
    equals.pop_back();
    ++degree_[node];
    append(node);
  }

 private:
  void append(std::int32_t node) {
    if (degree_[node] >= nodes_.size()) nodes_.resize(degree_[node] + 1);
    at_[node] = nodes_[degree_[node]].size();
    nodes_[degree_[node]].push_back(node);
  }

  std::vector<Indices> nodes_;  ///< by number of edges
  std::vector<std::size_t> degree_;
  std::vector<std::size_t> at_;  ///< the place of each node in its list
  std::size_t least_ = 0;
};

void add_extra_edges(std::vector<Indices>& neighbors, std::int64_t count, SplitMix64& random) {
  if (count == 0) return;
  Degrees degrees(neighbors);
  FreeColumns partners(std::ssize(neighbors));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t node = degrees.draw_least(random);
    neighbors[node].push_back(node);  // it is no partner of its own
    partners.start(neighbors[node], std::ssize(neighbors[node]) + 1);
    neighbors[node].pop_back();
    const std::int32_t partner = partners.take(random);
    neighbors[node].push_back(partner);
    neighbors[partner].push_back(node);
    degrees.raise(node);
    degrees.raise(partner);
  }
}

}  // namespace

Layout watts_strogatz(std::int64_t rows, std::int64_t cols, double density, double rewire, std::uint64_t seed,
                      bool diagonal) {
  const std::int64_t blocks = blocks_of(rows, cols, density);
  check_fraction("rewire", rewire);
  if (diagonal) check_diagonal(rows, cols, blocks);
  SplitMix64 generator(seed);
  const Bernoulli rewired(rewire);
  const RingLattice lattice(rows, cols, blocks);
  FreeColumns free(cols);
  RowList list;
  Indices columns;
  for (std::int64_t row = 0; row < rows; ++row) {
    lattice.read_row(row, columns);
    if (std::ssize(columns) < cols) {
      free.start(columns, std::ssize(columns) + 1);
      for (std::int32_t& column : columns)
        if (!(diagonal && column == row) && rewired(generator)) column = free.exchange(column, generator);
    }
    list.add(columns);
  }
  return std::move(list).layout(cols);
}

Layout balanced_watts_strogatz(std::int64_t rows, std::int64_t cols, double density, double rewire,
                               std::uint64_t seed, bool diagonal) {
  const std::int64_t blocks = blocks_of(rows, cols, density);
  check_fraction("rewire", rewire);
  if (diagonal) check_diagonal(rows, cols, blocks);
  const RingLattice lattice(rows, cols, blocks);
  std::vector<Indices> runs(static_cast<std::size_t>(rows));
  for (std::int64_t row = 0; row < rows; ++row) lattice.read_row(row, runs[row]);
  level_columns(runs, cols);  // moves nothing in a square grid

  SplitMix64 generator(seed);
  const Bernoulli rewired(rewire);
  std::vector<TradedRow> grid(runs.size());
  Indices traders;  // only rows with rewired blocks, so that each trade exchanges some
  for (std::int32_t row = 0; row < rows; ++row) {
    std::sort(runs[row].begin(), runs[row].end());
    for (const std::int32_t column : runs[row]) {
      const bool moves = !(diagonal && column == row) && rewired(generator);
      (moves ? grid[row].free : grid[row].fixed).push_back(column);
    }
    if (!grid[row].free.empty()) traders.push_back(row);
  }
  trade_at_random(grid, traders, generator);
  return layout_of(grid, cols);
}

Layout barabasi_albert(std::int64_t size, std::int64_t edges, bool diagonal, std::uint64_t seed,
                       std::int64_t extra_edges) {
  check_extent("size", size);
  check_range("edges", edges, 0, size - 1);
  const std::int64_t attached = edges * (size - edges);
  check_range("extra_edges", extra_edges, 0, size * (size - 1) / 2 - attached);
  check_blocks(2 * (attached + extra_edges) + (diagonal ? size : 0));
  SplitMix64 generator(seed);
  std::vector<Indices> grid(static_cast<std::size_t>(size));
  Indices ends;  // each node as often as it has edges, so that a uniform draw prefers nodes with many
  ends.reserve(static_cast<std::size_t>(2 * attached));
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
  add_extra_edges(grid, extra_edges, generator);
  RowList list;
  for (std::int32_t node = 0; node < size; ++node) {
    if (diagonal) grid[node].push_back(node);
    list.add(grid[node]);
  }
  return std::move(list).layout(size);
}

}  // namespace sparsekiln::patterns
