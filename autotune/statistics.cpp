#include "autotune/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace sparsekiln {

double quantile(std::span<const double> ascending, double q) {
  const double at = q * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, ascending.size() - 1);
  return std::lerp(ascending[below], ascending[above], at - static_cast<double>(below));
}

Spread spread(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {quantile(values, 0.5), quantile(values, 0.2), quantile(values, 0.8)};
}

}  // namespace sparsekiln
