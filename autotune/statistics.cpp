#include "autotune/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace sparsekiln {
namespace {

/// The rank of each value, 0 the smallest; equal values have the mean of theirs.
std::vector<double> ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i + 1;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (std::size_t k = i; k < end; ++k) ranks[order[k]] = static_cast<double>(i + end - 1) / 2;
    i = end;
  }
  return ranks;
}

}  // namespace

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

double rank_correlation(std::span<const double> a, std::span<const double> b) {
  const std::vector<double> rank_a = ranks(a);
  const std::vector<double> rank_b = ranks(b);
  const double mean = (static_cast<double>(rank_a.size()) - 1) / 2;
  double product = 0;
  double square_a = 0;
  double square_b = 0;
  for (std::size_t i = 0; i < rank_a.size(); ++i) {
    product += (rank_a[i] - mean) * (rank_b[i] - mean);
    square_a += (rank_a[i] - mean) * (rank_a[i] - mean);
    square_b += (rank_b[i] - mean) * (rank_b[i] - mean);
  }
  return square_a == 0 || square_b == 0 ? 0 : product / std::sqrt(square_a * square_b);
}

}  // namespace sparsekiln
