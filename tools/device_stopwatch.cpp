#include "tools/device_stopwatch.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "runtime/cuda/stream.h"

namespace sparsekiln::tools {
namespace {

// A kernel of 10 µs is launched 200 times a sample: what the first launch takes to arrive is lost in them.
constexpr double kSampleMs = 2;
constexpr int kFewestLaunches = 10;
constexpr int kMostLaunches = 10000;
constexpr std::chrono::milliseconds kWarmUp{50};

}  // namespace

Timing time_device_launches(const std::function<void(void* stream)>& launch, int samples) {
  const cuda::Stream stream;
  const cuda::Timer timer;
  const auto ms_of_one = [&](int launches) {
    timer.start(stream.handle());
    for (int i = 0; i < launches; ++i) launch(stream.handle());
    timer.stop(stream.handle());
    return timer.milliseconds() / launches;
  };
  const auto start = std::chrono::steady_clock::now();
  double estimate_ms = 0;
  do estimate_ms = ms_of_one(kFewestLaunches);
  while (std::chrono::steady_clock::now() - start < kWarmUp);

  const double launches =
      std::clamp(kSampleMs / std::max(estimate_ms, 1e-6), double{kFewestLaunches}, double{kMostLaunches});
  std::vector<double> times;
  for (int sample = 0; sample < std::max(samples, 1); ++sample)
    times.push_back(ms_of_one(static_cast<int>(launches)));
  stream.synchronize();
  return summarize(std::move(times), static_cast<int>(launches));
}

}  // namespace sparsekiln::tools
