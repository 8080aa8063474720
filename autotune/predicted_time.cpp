#include "autotune/predicted_time.h"

namespace sparsekiln {

std::string_view name(Bound bound) {
  static constexpr std::string_view kNames[] = {"memory", "cache", "arithmetic", "instructions", "latency"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Bound::latency) + 1);
  return kNames[static_cast<std::size_t>(bound)];
}

}  // namespace sparsekiln
