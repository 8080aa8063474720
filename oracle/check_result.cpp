#include "oracle/check_result.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/cuda/families.h"
#include "compiler/element.h"

namespace sparsekiln {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

}  // namespace

Adder adder_of(bool ieee, const Plan& plan) {
  const bool tensor_cores = std::any_of(plan.begin(), plan.end(), [&](const RangedConfig& range) {
    return cuda::on_tensor_cores(range.config.variant, ieee);
  });
  const bool warpgroups = std::any_of(plan.begin(), plan.end(), [](const RangedConfig& range) {
    return cuda::on_warpgroups(range.config.variant);
  });
  return warpgroups ? Adder::warpgroups : tensor_cores ? Adder::tensor_cores : Adder::float32;
}

double loss(Adder adder) {
  constexpr double kProductsAtOnce = 4;
  return adder == Adder::float32 ? 1 : 2 * (kProductsAtOnce + 1) / kProductsAtOnce;
}

double error_ratio(double value, double expected, double bound) {
  if (std::isnan(expected)) return std::isnan(value) ? 0 : kInf;
  if (value == expected) return 0;
  const double error = std::fabs(value - expected);
  return std::isfinite(error) && bound > 0 ? error / bound : kInf;
}

double exact_ratio(double value, double expected) {
  if (std::isnan(expected)) return std::isnan(value) ? 0 : kInf;
  return value == expected && std::signbit(value) == std::signbit(expected) ? 0 : kInf;
}

double rounded(double exact, DType type) {
  double value = 0;  // room for one element of any type
  store(type, exact, &value, 0);
  return to_double(type, &value, 0);
}

}  // namespace sparsekiln
