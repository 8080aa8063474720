#include "autotune/cpu_prediction.h"

#include <algorithm>

namespace sparsekiln::cpu {

Prediction predict(const Problem& problem, const Target& target, const Config&, std::int64_t n) {
  // A core of no particular processor: 64 float32 operations and 16 bytes of memory a nanosecond.
  constexpr double kFlops = 64;
  constexpr double kBytes = 16;
  const Floor least = floor_of(problem, n);
  const double arithmetic = least.flops / (kFlops * target.workers) * 1e-3;
  const double memory = least.bytes / (kBytes * target.workers) * 1e-3;
  return {std::max(arithmetic, memory), arithmetic > memory ? Bound::arithmetic : Bound::memory};
}

}  // namespace sparsekiln::cpu
