#pragma once

#include <span>
#include <vector>

namespace sparsekiln {

/// Median and spread of what was measured, in its unit.
struct Spread {
  double median = 0;
  double p20 = 0;
  double p80 = 0;
};

/// The q-quantile (0 to 1) of ascending values, linear between neighbours. At least one value.
[[nodiscard]] double quantile(std::span<const double> ascending, double q);
/// Of values in any order; zeros where there are none.
[[nodiscard]] Spread spread(std::vector<double> values);

/// Spearman's rank correlation of two rows of the same length: 1 where they ascend alike, -1 where one
/// descends as the other ascends. Equal values share the mean of their ranks; 0 where a row has but one
/// value.
[[nodiscard]] double rank_correlation(std::span<const double> a, std::span<const double> b);

}  // namespace sparsekiln
