#include "runtime/sampler.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "runtime/cuda/device.h"
#include "runtime/cuda/stream.h"

namespace sparsekiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWarmUp{50};
constexpr double kHostSampleMs = 1;
// A kernel of 10 µs is launched 200 times a sample: what the first launch takes to arrive is lost in them.
constexpr double kCudaSampleMs = 2;
constexpr int kFewestCudaLaunches = 10;
constexpr int kMostLaunches = 10000;

constexpr std::int64_t kColdTimesL2 =
    4;  ///< one would do where the L2 drops the oldest line and holds none twice
constexpr std::int64_t kMostCopies = 4096;

}  // namespace

Sampler::Sampler(MsOf ms_of, double sample_ms, int fewest) : ms_of_(std::move(ms_of)) {
  const auto start = Clock::now();
  double estimate_ms = 0;
  do estimate_ms = ms_of_(fewest);
  while (Clock::now() - start < kWarmUp);
  const double launches = sample_ms / std::max(estimate_ms, 1e-6);
  launches_ = static_cast<int>(std::clamp(launches, double{1} * fewest, double{kMostLaunches}));
}

Sampler Sampler::host(Launch launch, std::function<void()> synchronize) {
  const auto ms_of = [launch = std::move(launch), synchronize = std::move(synchronize)](int launches) {
    const auto begin = Clock::now();
    for (int i = 0; i < launches; ++i) launch(nullptr);
    synchronize();
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count() / launches;
  };
  return {ms_of, kHostSampleMs, 1};
}

Sampler Sampler::cuda(const Device& device, Launch launch) {
  struct Lane {
    explicit Lane(const std::shared_ptr<const cuda::Context>& context) : stream(context), timer(context) {}
    cuda::Stream stream;
    cuda::Timer timer;
  };
  const auto lane = std::make_shared<const Lane>(cuda::context_of(device));
  const auto ms_of = [launch = std::move(launch), lane](int launches) {
    lane->timer.start(lane->stream.handle());
    for (int i = 0; i < launches; ++i) launch(lane->stream.handle());
    lane->timer.stop(lane->stream.handle());
    return lane->timer.milliseconds() / launches;
  };
  return {ms_of, kCudaSampleMs, kFewestCudaLaunches};
}

Rotation rotate(std::int64_t bytes_of_one, const Device& device) {
  if (device.target().kind != Target::Kind::cuda) return {.bytes = bytes_of_one};
  const std::int64_t l2 = device.about().cache_bytes;
  const std::int64_t enough = kColdTimesL2 * l2;
  const std::int64_t copies =
      l2 == 0 ? 1 : std::min(enough / std::max<std::int64_t>(bytes_of_one, 1) + 1, kMostCopies);
  const std::int64_t bytes = copies * bytes_of_one;
  return {static_cast<int>(copies), bytes, l2, l2 != 0 && bytes > enough};
}

}  // namespace sparsekiln
