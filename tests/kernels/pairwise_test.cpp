#include "tests/kernels/pairwise.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

using namespace sparsekiln::test;

namespace {

/// Counts pairs that are neither in a row nor listed as impossible.
std::size_t uncovered(const std::vector<int>& sizes, const CoveringArray& array, Allowed allowed = {}) {
  const Family family{sizes, std::move(allowed)};
  return sparsekiln::test::uncovered(std::span(&family, 1), {}, std::span(&array, 1)).size();
}

}  // namespace

TEST_CASE("the covering array holds every pair in far fewer rows than the product") {
  const std::vector<int> sizes = {16, 25, 14, 5, 4, 3, 3, 2, 2, 2};
  const CoveringArray array = pairwise(sizes);
  CHECK(uncovered(sizes, array) == 0);
  CHECK(array.impossible.empty());
  CHECK(array.rows.size() >= 16 * 25);
  CHECK(array.rows.size() <= 16 * 25 * 3 / 2);
  for (const Row& row : array.rows)
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
      REQUIRE(row[axis] >= 0);
      REQUIRE(row[axis] < sizes[axis]);
    }
}

TEST_CASE("the covering array has only allowed rows, and names the pairs that are impossible") {
  const std::vector<int> sizes = {5, 4, 3, 2};
  const Allowed allowed = [](const Row& row) {
    if (row[0] == 1 && row[1] == 2) return false;
    return row[0] != 4 || row[2] == kUnset || row[2] == row[3] || row[3] == kUnset;
  };
  const CoveringArray array = pairwise(sizes, allowed);
  CHECK(uncovered(sizes, array, allowed) == 0);
  CHECK(std::all_of(array.rows.begin(), array.rows.end(), allowed));
  CHECK(array.impossible == std::vector<Pair>{{0, 1, 1, 2}, {0, 2, 4, 2}});
}

TEST_CASE("the covering array is the same every time") {
  const std::vector<int> sizes = {7, 6, 5, 4, 3};
  CHECK(pairwise(sizes).rows == pairwise(sizes).rows);
}

TEST_CASE("axes with one value, and a single axis, are covered") {
  CHECK(pairwise(std::vector<int>{3, 1}).rows.size() == 3);
  CHECK(pairwise(std::vector<int>{3}).rows.empty());
  CHECK(pairwise(std::vector<int>{}).rows.empty());
}

TEST_CASE("a pair that is neither in a row nor impossible is found") {
  const std::vector<int> sizes = {3, 3, 2};
  CoveringArray array = pairwise(sizes);
  array.rows.pop_back();
  CHECK(uncovered(sizes, array) > 0);
}

TEST_CASE("pairs of shared axes are in one of several arrays, all others in each") {
  // Axes 0 and 1 are shared; the third family has fewer values of the second.
  const std::vector<Family> families = {{{20, 12, 4, 3}, {}}, {{20, 12, 5, 2}, {}}, {{20, 7, 3, 3}, {}}};
  const std::array<std::size_t, 2> shared{0, 1};
  const std::vector<CoveringArray> arrays = pairwise(families, shared);
  REQUIRE(arrays.size() == 3);
  CHECK(sparsekiln::test::uncovered(families, shared, arrays).empty());
  std::size_t rows = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    CHECK(arrays[i].impossible.empty());
    rows += arrays[i].rows.size();
    for (const std::size_t axis : {2, 3})  // pairs with the first axis
      CHECK(arrays[i].rows.size() >= static_cast<std::size_t>(20 * families[i].sizes[axis]));
  }
  CHECK(rows >= 20 * 12);
  CHECK(rows <= 20 * (12 + 4));  // an array each would have 20 * (12 + 12 + 7)
}

TEST_CASE(
    "a shared pair that one family does not allow is given to another, and is impossible if none allows it") {
  const auto refuses = [](int first, int second) {
    return [=](const Row& row) { return row[0] != first || row[1] != second; };
  };
  const auto refuses_both = [](const Row& row) { return row[0] != 1 || (row[1] != 0 && row[1] != 2); };
  const std::vector<Family> families = {{{4, 3}, refuses(1, 2)}, {{4, 3}, refuses_both}};
  const std::array<std::size_t, 2> shared{0, 1};
  const std::vector<CoveringArray> arrays = pairwise(families, shared);
  CHECK(sparsekiln::test::uncovered(families, shared, arrays).empty());
  const auto holds = [&](int first, int second) {
    return std::any_of(arrays.begin(), arrays.end(), [&](const CoveringArray& array) {
      return std::find(array.rows.begin(), array.rows.end(), Row{first, second}) != array.rows.end();
    });
  };
  CHECK(holds(1, 0));
  CHECK_FALSE(holds(1, 2));
  for (const CoveringArray& array : arrays)
    CHECK(std::count(array.impossible.begin(), array.impossible.end(), Pair{0, 1, 1, 2}) == 1);
}

TEST_CASE("the product has every allowed row once") {
  const std::vector<int> sizes = {2, 3, 2};
  CHECK(product(sizes).size() == 12);
  const std::vector<Row> rows = product(sizes, [](const Row& row) { return row[0] != 1 || row[1] != 2; });
  CHECK(rows.size() == 10);
  CHECK(rows.front() == Row{0, 0, 0});
  CHECK(rows.back() == Row{1, 1, 1});
}
