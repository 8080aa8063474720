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
/// The spread of values in any order; zeros where there are none.
[[nodiscard]] Spread spread(std::vector<double> values);

}  // namespace sparsekiln
