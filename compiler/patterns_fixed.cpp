// The patterns without a random draw: each row is a union of ranges of columns.

#include <sparsekiln/patterns.h>

#include <algorithm>
#include <bit>

#include "compiler/pattern_rows.h"

namespace sparsekiln::patterns {

Layout block_diagonal(std::int64_t rows, std::int64_t cols, std::int64_t groups) {
  check_extent("rows", rows);
  check_extent("cols", cols);
  check_range("groups", groups, 1, std::min(rows, cols));
  return RowUnion(cols).build(rows, [&](std::int64_t row, Ranges& ranges) {
    const std::int64_t group = ((row + 1) * groups - 1) / rows;
    ranges.emplace_back(group * cols / groups, (group + 1) * cols / groups);
  });
}

Layout banded(std::int64_t rows, std::int64_t cols, std::int64_t half_width) {
  check_extent("rows", rows);
  check_extent("cols", cols);
  check_range("half_width", half_width, 0, Layout::kMaxExtent);
  return RowUnion(cols).build(rows, [&](std::int64_t row, Ranges& ranges) {
    // The diagonal crosses the columns [row · cols / rows, (row + 1) · cols / rows).
    const std::int64_t first = row * cols / rows;
    const std::int64_t last = ((row + 1) * cols + rows - 1) / rows;
    ranges.emplace_back(first - half_width, last + half_width);
  });
}

Layout butterfly(std::int64_t size) {
  check_extent("size", size);
  if (!std::has_single_bit(static_cast<std::uint64_t>(size)))
    refuse("size is " + std::to_string(size) + "; expected a power of two");
  return RowUnion(size).build(size, [&](std::int64_t row, Ranges& ranges) {
    ranges.emplace_back(row, row + 1);
    for (std::int64_t bit = 1; bit < size; bit *= 2) ranges.emplace_back(row ^ bit, (row ^ bit) + 1);
  });
}

Layout causal(std::int64_t size) {
  check_extent("size", size);
  return RowUnion(size).build(size,
                              [](std::int64_t row, Ranges& ranges) { ranges.emplace_back(0, row + 1); });
}

Layout strided(std::int64_t size, std::int64_t stride) {
  check_extent("size", size);
  check_range("stride", stride, 1, Layout::kMaxExtent);
  return RowUnion(size).build(size, [&](std::int64_t row, Ranges& ranges) {
    for (std::int64_t column = row % stride; column < row - stride; column += stride)
      ranges.emplace_back(column, column + 1);
    ranges.emplace_back(row - stride, row + 1);
  });
}

Layout longformer(std::int64_t size, std::int64_t window, std::int64_t global) {
  check_extent("size", size);
  check_range("window", window, 0, Layout::kMaxExtent);
  check_range("global", global, 0, size);
  return RowUnion(size).build(size, [&](std::int64_t row, Ranges& ranges) {
    ranges.emplace_back(0, row < global ? size : global);
    ranges.emplace_back(row - window, row + window + 1);
  });
}

}  // namespace sparsekiln::patterns
