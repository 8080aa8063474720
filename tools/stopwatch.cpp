#include "tools/stopwatch.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <utility>

namespace sparsekiln::tools {
namespace {

constexpr double kSampleMs = 1;
constexpr double kWarmUpMs = 50;
constexpr int kMostLaunches = 10000;

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - static_cast<double>(below));
}

}  // namespace

Timing summarize(std::vector<double> times, int launches_per_sample) {
  std::sort(times.begin(), times.end());
  Timing timing;
  timing.samples = static_cast<int>(times.size());
  timing.launches_per_sample = launches_per_sample;
  timing.median_ms = quantile(times, 0.5);
  timing.p20_ms = quantile(times, 0.2);
  timing.p80_ms = quantile(times, 0.8);
  return timing;
}

Timing time_launches(const std::function<void()>& launch, const std::function<void()>& synchronize,
                     int samples) {
  int warm_ups = 0;
  const Clock::time_point start = Clock::now();
  do {
    launch();
    synchronize();
    ++warm_ups;
  } while (ms_since(start) < kWarmUpMs && warm_ups < kMostLaunches);
  const double estimate_ms = std::max(ms_since(start) / warm_ups, 1e-6);

  const int launches = static_cast<int>(std::clamp(kSampleMs / estimate_ms, 1.0, double{kMostLaunches}));
  std::vector<double> times;
  for (int sample = 0; sample < std::max(samples, 1); ++sample) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < launches; ++i) launch();
    synchronize();
    times.push_back(ms_since(begin) / launches);
  }
  return summarize(std::move(times), launches);
}

}  // namespace sparsekiln::tools
