#pragma once

#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <sparsekiln/layout.h>

namespace sparsekiln::test {

/// A layout with its block rows in an order drawn from `seed`; the same on every machine.
inline Layout shuffled_rows(const Layout& layout, std::uint32_t seed) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(layout.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  std::mt19937 random(seed);
  for (std::size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[random() % i]);
  std::vector<std::int32_t> crow{0};
  std::vector<std::int32_t> col;
  for (const std::int32_t row : rows) {
    col.insert(col.end(), layout.row(row).begin(), layout.row(row).end());
    crow.push_back(static_cast<std::int32_t>(col.size()));
  }
  return Layout::from_csr(layout.rows(), layout.cols(), std::move(crow), std::move(col));
}

}  // namespace sparsekiln::test
