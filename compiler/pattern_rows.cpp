#include "compiler/pattern_rows.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln::patterns {

void refuse(const std::string& what) { throw Error(ErrorKind::invalid_argument, "pattern: " + what); }

void check_range(std::string_view argument, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    refuse(fmt::format("{} is {}; expected {} to {}", argument, value, least, most));
}

void check_extent(std::string_view argument, std::int64_t value) {
  check_range(argument, value, 1, Layout::kMaxExtent);
}

void check_fraction(std::string_view argument, double value) {
  if (!(value >= 0 && value <= 1)) refuse(fmt::format("{} is {}; expected 0 to 1", argument, value));
}

void check_blocks(std::int64_t blocks) {
  if (blocks > Layout::kMaxBlocks)
    refuse(
        fmt::format("{} blocks or more are too many; at most {} are possible", blocks, Layout::kMaxBlocks));
}

void check_diagonal(std::int64_t rows, std::int64_t cols, std::int64_t blocks) {
  if (rows != cols)
    refuse(fmt::format("diagonal of {} × {} blocks; expected as many rows as columns", rows, cols));
  if (blocks < rows)
    refuse(
        fmt::format("the density gives {} blocks, and the diagonal alone has {}; expected a density of "
                    "1/{} or more",
                    blocks, rows, rows));
}

std::int64_t blocks_of(std::int64_t rows, std::int64_t cols, double density) {
  check_extent("rows", rows);
  check_extent("cols", cols);
  check_fraction("density", density);
  // rows · cols is exact in a double, so there is one rounding before the last.
  const auto blocks = static_cast<std::int64_t>(std::floor(density * static_cast<double>(rows * cols) + 0.5));
  check_blocks(blocks);
  return std::min(blocks, rows * cols);
}

std::int64_t RowUnion::make_disjoint() {
  std::sort(ranges_.begin(), ranges_.end());
  std::int64_t columns = 0;
  std::int64_t end = 0;
  for (auto& [first, last] : ranges_) {
    first = std::max(first, end);
    last = std::max(first, std::min(last, cols_));
    end = std::max(end, last);
    columns += last - first;
  }
  return columns;
}

void RowList::add(Indices& columns) {
  std::sort(columns.begin(), columns.end());
  col_.insert(col_.end(), columns.begin(), columns.end());
  crow_.push_back(static_cast<std::int32_t>(col_.size()));
}

Layout RowList::layout(std::int64_t cols) && {
  const auto rows = std::ssize(crow_) - 1;
  return Layout::from_csr(rows, cols, std::move(crow_), std::move(col_));
}

void shuffle(Indices& values, SplitMix64& random) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[draw_below(random, i)]);
}

FreeColumns::FreeColumns(std::int64_t cols) : taken_in_(static_cast<std::size_t>(cols)) {}

void FreeColumns::start(const std::vector<std::int32_t>& taken, std::int64_t most_taken) {
  ++row_;
  for (const std::int32_t column : taken) taken_in_[column] = row_;
  listed_ = 2 * most_taken > std::ssize(taken_in_);
  if (!listed_) return;
  free_.clear();
  for (std::int32_t column = 0; column < std::ssize(taken_in_); ++column)
    if (!is_taken(column)) free_.push_back(column);
}

std::int32_t FreeColumns::take(SplitMix64& random) {
  std::int32_t column = 0;
  if (listed_) {
    const auto at = draw_below(random, free_.size());
    column = free_[at];
    free_[at] = free_.back();
    free_.pop_back();
  } else {
    // At most half the row is taken, so two tries are enough on average.
    do {
      column = static_cast<std::int32_t>(draw_below(random, taken_in_.size()));
    } while (is_taken(column));
  }
  taken_in_[column] = row_;
  return column;
}

std::int32_t FreeColumns::exchange(std::int32_t taken, SplitMix64& random) {
  const std::int32_t column = take(random);
  taken_in_[taken] = 0;
  if (listed_) free_.push_back(taken);
  return column;
}

}  // namespace sparsekiln::patterns
