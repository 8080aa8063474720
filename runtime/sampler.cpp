#include "runtime/sampler.h"

#include <algorithm>
#include <chrono>

namespace sparsekiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWarmUp{50};
constexpr int kMostLaunches = 10000;

constexpr std::int64_t kColdTimesL2 =
    4;  ///< one would do where the L2 drops the oldest line and holds none twice
constexpr std::int64_t kMostCopies = 4096;

}  // namespace

Sampler::Sampler(std::unique_ptr<const Stopwatch> stopwatch, const Timing& timing, Launch launch)
    : stopwatch_(std::move(stopwatch)), launch_(std::move(launch)) {
  const auto start = Clock::now();
  double estimate_ms = 0;
  do estimate_ms = ms_of(timing.fewest_launches);
  while (Clock::now() - start < kWarmUp);
  const double launches = timing.sample_ms / std::max(estimate_ms, 1e-6);
  launches_ =
      static_cast<int>(std::clamp(launches, double{1} * timing.fewest_launches, double{kMostLaunches}));
}

Rotation rotate(std::int64_t bytes_of_one, const Device& device) {
  if (!device.timing().cold) return {.bytes = bytes_of_one};
  const std::int64_t l2 = device.about().cache_bytes;
  const std::int64_t enough = kColdTimesL2 * l2;
  const std::int64_t copies =
      l2 == 0 ? 1 : std::min(enough / std::max<std::int64_t>(bytes_of_one, 1) + 1, kMostCopies);
  const std::int64_t bytes = copies * bytes_of_one;
  return {static_cast<int>(copies), bytes, l2, l2 != 0 && bytes > enough};
}

}  // namespace sparsekiln
