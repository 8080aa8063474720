#include "compiler/row_group.h"

#include <algorithm>
#include <numeric>

#include <doctest/doctest.h>
#include <sparsekiln/patterns.h>

#include "tests/shuffled_rows.h"

namespace sparsekiln {
namespace {

double saved(const Layout& layout, std::int32_t size) {
  const RowSets sets = RowSets::of(layout);
  const RowSets united = unite(sets, group_rows(sets, size), size);
  return 1 - static_cast<double>(united.cols.size()) / static_cast<double>(layout.blocks());
}

TEST_CASE("every row has one place, ascending within its row group") {
  for (const std::int32_t size : {1, 2, 3, 4, 8, 100})
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      CAPTURE(size);
      CAPTURE(seed);
      const Layout layout = patterns::random(1 + static_cast<std::int64_t>(seed) * 3, 17, 0.2, seed);
      const std::vector<std::int32_t> order = group_rows(RowSets::of(layout), size);
      REQUIRE(order.size() % static_cast<std::size_t>(size) == 0);
      REQUIRE(order.size() < static_cast<std::size_t>(layout.rows() + size));
      std::vector<std::int32_t> rows;
      for (std::size_t place = 0; place < order.size(); ++place) {
        if (order[place] == kNoRow) continue;
        rows.push_back(order[place]);
        if (place % static_cast<std::size_t>(size) != 0) {
          REQUIRE(order[place - 1] != kNoRow);
          REQUIRE(order[place - 1] < order[place]);
        }
      }
      std::sort(rows.begin(), rows.end());
      std::vector<std::int32_t> all(static_cast<std::size_t>(layout.rows()));
      std::iota(all.begin(), all.end(), 0);
      REQUIRE(rows == all);
    }
}

TEST_CASE("row groups of four save 40 % of the loads of a small world, 20 % of a random layout") {
  for (const double rewire : {0.0, 0.1, 0.2, 0.3}) {
    CAPTURE(rewire);
    CHECK(saved(patterns::watts_strogatz(384, 384, 0.1, rewire, 1), 4) >= 0.4);
  }
  CHECK(saved(patterns::watts_strogatz(384, 384, 0.1, 1, 1), 4) >= 0.2);
  CHECK(saved(patterns::random(384, 384, 0.1, 2), 4) >= 0.2);
}

TEST_CASE("90 % of what row groups save is found again when the rows are shuffled") {
  for (const double rewire : {0.0, 0.1, 0.3, 1.0})
    for (const std::uint32_t seed : {1U, 2U, 3U}) {
      CAPTURE(rewire);
      CAPTURE(seed);
      const Layout layout = patterns::watts_strogatz(384, 384, 0.1, rewire, seed);
      CHECK(saved(test::shuffled_rows(layout, seed), 4) >= 0.9 * saved(layout, 4));
    }
}

TEST_CASE("equal rows find each other") {
  // Rows r and r + 8 are the same for every r below 8.
  std::vector<std::uint8_t> mask(16 * 16, 0);
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 2; ++k) mask[static_cast<std::size_t>(row * 16 + row % 8 * 2 + k)] = 1;
  const RowSets sets = RowSets::of(Layout::from_mask(16, 16, mask));
  const std::vector<std::int32_t> order = group_rows(sets, 2);
  for (std::size_t place = 0; place < 16; place += 2) CHECK(order[place] + 8 == order[place + 1]);
}

TEST_CASE("row groups lie in the order of their columns") {
  const RowSets sets = RowSets::of(test::shuffled_rows(patterns::banded(64, 64, 3), 1));
  const std::vector<std::int32_t> order = group_rows(sets, 4);
  const RowSets united = unite(sets, order, 4);
  for (std::int32_t row_group = 1; row_group < united.rows(); ++row_group) {
    const auto mean = [&](std::int32_t at) {
      const auto begin = united.cols.begin() + united.begin[static_cast<std::size_t>(at)];
      const auto end = united.cols.begin() + united.begin[static_cast<std::size_t>(at) + 1];
      return std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
    };
    CHECK(mean(row_group - 1) <= mean(row_group) + 0.001);
  }
}

TEST_CASE("a column that every row has does not make the search quadratic") {
  // 100,000 rows share one column; the square of its length would take minutes.
  std::vector<std::int32_t> crow{0};
  std::vector<std::int32_t> col;
  for (std::int32_t row = 0; row < 100'000; ++row) {
    col.insert(col.end(), {0, 1 + row % 50'000});
    crow.push_back(static_cast<std::int32_t>(col.size()));
  }
  const Layout layout = Layout::from_csr(100'000, 50'001, crow, col);
  CHECK(saved(layout, 2) == doctest::Approx(0.5));
}

TEST_CASE("columns of one length, too long to go through, are left out together") {
  // Going through them would take 1024 × 1024 × 1024 / 2 steps; found or not, every row has a place.
  const std::int64_t size = 1024;
  const Layout layout = Layout::from_mask(size, size, std::vector<std::uint8_t>(size * size, 1));
  CHECK(group_rows(RowSets::of(layout), 4).size() == 1024);
}

TEST_CASE("no rows make no row groups") {
  CHECK(group_rows(RowSets::of(Layout()), 4).empty());
  CHECK(group_rows(RowSets{}, 4).empty());
}

}  // namespace
}  // namespace sparsekiln
