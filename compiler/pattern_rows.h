#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sparsekiln/layout.h>

#include "compiler/random.h"

/// Shared by the patterns: checks of their arguments, and grids made row by row.
namespace sparsekiln::patterns {

using Indices = std::vector<std::int32_t>;

/// Throws `invalid_argument`: "pattern: WHAT".
[[noreturn]] void refuse(const std::string& what);

/// Throws `invalid_argument` naming the argument unless least ≤ value ≤ most.
void check_range(std::string_view argument, std::int64_t value, std::int64_t least, std::int64_t most);
/// As above, for a grid's extent: 1 to Layout::kMaxExtent.
void check_extent(std::string_view argument, std::int64_t value);
/// As above, for a probability or a density; NaN is refused.
void check_fraction(std::string_view argument, double value);
/// Throws `invalid_argument` if a pattern has more blocks than a layout can hold.
void check_blocks(std::int64_t blocks);

/// Throws `invalid_argument` unless a grid of rows × cols is square and has so many blocks or more that its
/// diagonal can be among them.
void check_diagonal(std::int64_t rows, std::int64_t cols, std::int64_t blocks);

/// round(density · rows · cols), halves up.
[[nodiscard]] std::int64_t blocks_of(std::int64_t rows, std::int64_t cols, double density);

/// Ranges [first, last) of columns; a row is their union.
using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// A grid whose rows `ranges_of(row, ranges)` defines. Ranges may overlap, touch, be empty or extend beyond
/// the grid. Rows are counted before memory is allocated, so that a pattern that is too large is refused at
/// once.
class RowUnion {
 public:
  explicit RowUnion(std::int64_t cols) : cols_(cols) {}

  template <typename RangesOf>
  [[nodiscard]] Layout build(std::int64_t rows, RangesOf ranges_of) {
    std::int64_t blocks = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      blocks += collect(row, ranges_of);
      check_blocks(blocks);
    }
    std::vector<std::int32_t> crow{0};
    crow.reserve(static_cast<std::size_t>(rows) + 1);
    std::vector<std::int32_t> col;
    col.reserve(static_cast<std::size_t>(blocks));
    for (std::int64_t row = 0; row < rows; ++row) {
      collect(row, ranges_of);
      for (const auto& [first, last] : ranges_)
        for (std::int64_t j = first; j < last; ++j) col.push_back(static_cast<std::int32_t>(j));
      crow.push_back(static_cast<std::int32_t>(col.size()));
    }
    return Layout::from_csr(rows, cols_, std::move(crow), std::move(col));
  }

 private:
  template <typename RangesOf>
  std::int64_t collect(std::int64_t row, RangesOf& ranges_of) {
    ranges_.clear();
    ranges_of(row, ranges_);
    return make_disjoint();
  }
  /// Sorts, clips and trims the ranges; returns the number of columns in them.
  std::int64_t make_disjoint();

  std::int64_t cols_;
  Ranges ranges_;
};

/// Grows a layout by whole rows, whose columns may come in any order.
class RowList {
 public:
  /// Sorts the columns.
  void add(Indices& columns);
  [[nodiscard]] Layout layout(std::int64_t cols) &&;

 private:
  Indices crow_{0};
  Indices col_;
};

/// Fisher–Yates, from the end.
void shuffle(Indices& values, SplitMix64& random);

/// The columns of one row that are taken, and uniform draws from the others. One object serves many rows. The
/// cost of a row is proportional to the number of columns that it takes, not to the width of the grid, except
/// for rows more than half full.
class FreeColumns {
 public:
  explicit FreeColumns(std::int64_t cols);

  /// Starts a row with these columns taken; never more than `most_taken` will be.
  void start(const std::vector<std::int32_t>& taken, std::int64_t most_taken);
  /// Takes a free column, uniformly. There must be one.
  std::int32_t take(SplitMix64& random);
  /// Takes a free column in exchange for a taken one, which is free from then on.
  std::int32_t exchange(std::int32_t taken, SplitMix64& random);

 private:
  [[nodiscard]] bool is_taken(std::int64_t column) const { return taken_in_[column] == row_; }

  std::vector<std::uint32_t> taken_in_;  ///< the row that took the column last
  std::uint32_t row_ = 0;
  bool listed_ = false;  ///< whether free columns are in a list; otherwise they are found by trying
  std::vector<std::int32_t> free_;
};

}  // namespace sparsekiln::patterns
