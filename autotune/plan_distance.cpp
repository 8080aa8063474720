#include "autotune/plan_distance.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace sparsekiln {
namespace {

constexpr double kAnotherKernel = 1000;  // more than all numbers of a config together can come to
constexpr double kAnotherTable = 0.25;

/// In doublings; numbers may be 0, and kDerivedInFlight counts as all.
double ratio(std::int32_t a, std::int32_t b) {
  return std::abs(std::log2((std::max(a, 0) + 1.0) / (std::max(b, 0) + 1.0)));
}

double distance(const Config& a, const Config& b) {
  double sum = 0;
  if (a.variant != b.variant) sum += kAnotherKernel;
  if (a.operand_a != b.operand_a) sum += kAnotherKernel;
  if (a.packed != b.packed) sum += kAnotherKernel;
  if (a.table != b.table) sum += kAnotherTable;
  for (const auto field :
       {&Config::tile_n, &Config::tile_out, &Config::stages, &Config::warps, &Config::split, &Config::rows,
        &Config::merge, &Config::split_saves, &Config::in_flight, &Config::cluster, &Config::cluster_rows})
    sum += ratio(a.*field, b.*field);
  for (std::size_t i = 0; i < kMostKnobs; ++i) sum += ratio(a.knobs[i], b.knobs[i]);
  return sum;
}

/// The config that serves n; the last one where the plan does not reach it.
const Config& at(const Plan& plan, std::int64_t n) {
  const auto range = std::find_if(plan.begin(), plan.end(), [&](const auto& one) { return n <= one.up_to; });
  return range == plan.end() ? plan.back().config : range->config;
}

}  // namespace

double distance(const Plan& a, const Plan& b) {
  if (a.empty() || b.empty()) return a.empty() && b.empty() ? 0 : kAnotherKernel;
  double sum = 0;
  for (const Plan* const plan : {&a, &b})
    for (const RangedConfig& range : *plan) sum += distance(at(a, range.up_to), at(b, range.up_to));
  return sum / static_cast<double>(a.size() + b.size());
}

}  // namespace sparsekiln
