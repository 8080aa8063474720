#include "autotune/statistics.h"

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

}  // namespace
}  // namespace sparsekiln
