#include "tests/kernels/pairwise.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace sparsekiln::test;

namespace {

/// Counts pairs that are neither in a row nor said to be impossible.
int uncovered(const std::vector<int>& sizes, const CoveringArray& array) {
  int count = 0;
  for (std::size_t a = 0; a < sizes.size(); ++a)
    for (std::size_t b = a + 1; b < sizes.size(); ++b)
      for (int first = 0; first < sizes[a]; ++first)
        for (int second = 0; second < sizes[b]; ++second) {
          const auto holds = [&](const Row& row) { return row[a] == first && row[b] == second; };
          const Pair pair{a, b, first, second};
          if (std::none_of(array.rows.begin(), array.rows.end(), holds) &&
              std::find(array.impossible.begin(), array.impossible.end(), pair) == array.impossible.end())
            ++count;
        }
  return count;
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

TEST_CASE("the covering array obeys what is allowed, and names the pairs that this makes impossible") {
  const std::vector<int> sizes = {5, 4, 3, 2};
  const Allowed allowed = [](const Row& row) {
    if (row[0] == 1 && row[1] == 2) return false;
    return row[0] != 4 || row[2] == kUnset || row[2] == row[3] || row[3] == kUnset;
  };
  const CoveringArray array = pairwise(sizes, allowed);
  CHECK(uncovered(sizes, array) == 0);
  CHECK(std::all_of(array.rows.begin(), array.rows.end(), allowed));
  CHECK(array.impossible == std::vector<Pair>{{0, 1, 1, 2}, {0, 2, 4, 2}});
}

TEST_CASE("the covering array is the same every time") {
  const std::vector<int> sizes = {7, 6, 5, 4, 3};
  CHECK(pairwise(sizes).rows == pairwise(sizes).rows);
}

TEST_CASE("axes of a single value, and a single axis, cause no trouble") {
  CHECK(pairwise(std::vector<int>{3, 1}).rows.size() == 3);
  CHECK(pairwise(std::vector<int>{3}).rows.empty());
  CHECK(pairwise(std::vector<int>{}).rows.empty());
}
