#include "autotune/statistics.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

namespace sparsekiln {
namespace {

using Values = std::vector<double>;

TEST_CASE("quantiles lie on the line between the values around them") {
  const Values values{1, 2, 4, 8, 16};
  CHECK(quantile(values, 0) == 1);
  CHECK(quantile(values, 0.25) == 2);
  CHECK(quantile(values, 0.5) == 4);
  CHECK(quantile(values, 0.625) == doctest::Approx(6));
  CHECK(quantile(values, 0.9) == doctest::Approx(12.8));
  CHECK(quantile(values, 1) == 16);
  CHECK(quantile(Values{7}, 0.3) == 7);
}

TEST_CASE("median and spread do not depend on the order of the values") {
  const Spread expected{3, 1.8, 4.2};
  for (const Values& values : {Values{1, 2, 3, 4, 5}, Values{5, 3, 1, 4, 2}, Values{2, 1, 5, 4, 3}}) {
    const Spread found = spread(values);
    CHECK(found.median == doctest::Approx(expected.median));
    CHECK(found.p20 == doctest::Approx(expected.p20));
    CHECK(found.p80 == doctest::Approx(expected.p80));
  }
}

TEST_CASE("the median of an even number of values is the mean of the two in the middle") {
  CHECK(spread({4, 1, 3, 2}).median == 2.5);
}

TEST_CASE("the spread of one value is that value, and of none zero") {
  CHECK(spread({9}).p20 == 9);
  CHECK(spread({9}).p80 == 9);
  CHECK(spread({}).median == 0);
}

TEST_CASE("rows that ascend alike correlate with 1, whatever their scale, and opposite ones with -1") {
  const Values a{1, 5, 2, 9};
  CHECK(rank_correlation(a, Values{10, 1e6, 11, 1e9}) == doctest::Approx(1));
  CHECK(rank_correlation(a, Values{-1, -5, -2, -9}) == doctest::Approx(-1));
}

TEST_CASE("the rank correlation is Spearman's") {
  // 1 - 6 * (1 + 1 + 0 + 1 + 1) / (5 * 24), from the differences of the ranks
  CHECK(rank_correlation(Values{1, 2, 3, 4, 5}, Values{2, 1, 3, 5, 4}) == doctest::Approx(0.8));
}

TEST_CASE("equal values share the mean of their ranks") {
  // Ranks 0 1.5 1.5 3 against 0 1 2 3: the product of the deviations is 4.5, their squares 4.5 and 5.
  CHECK(rank_correlation(Values{1, 2, 2, 3}, Values{1, 2, 3, 4}) == doctest::Approx(4.5 / std::sqrt(22.5)));
  CHECK(rank_correlation(Values{1, 2, 2, 3}, Values{5, 6, 6, 7}) == doctest::Approx(1));
}

TEST_CASE("a row of one value correlates with nothing") {
  CHECK(rank_correlation(Values{3, 3, 3}, Values{1, 2, 3}) == 0);
  CHECK(rank_correlation(Values{}, Values{}) == 0);
}

}  // namespace
}  // namespace sparsekiln
