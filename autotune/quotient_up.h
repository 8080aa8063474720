#pragma once

#include <cstdint>

namespace sparsekiln {

/// A quotient, rounded up: neither number is negative, and the divisor is not 0.
[[nodiscard]] constexpr std::int64_t quotient_up(std::int64_t value, std::int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

}  // namespace sparsekiln
