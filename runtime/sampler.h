#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/device.h"

namespace sparsekiln {

/// Times the launches of one kernel, as many in a sample as last a millisecond or two, so that neither the
/// clock nor what a launch costs the host shows.
class Sampler {
 public:
  using Launch = Stopwatch::Launch;
  Sampler(std::unique_ptr<const Stopwatch> stopwatch, const Timing& timing, Launch launch);
  /// By the device's stopwatch. The device must outlive this.
  Sampler(const Device& device, Launch launch)
      : Sampler(device.stopwatch(), device.timing(), std::move(launch)) {}

  /// Milliseconds a launch, of one sample.
  [[nodiscard]] double sample_ms() const { return ms_of(launches_); }
  /// One launch that is not timed, to run after those of another kernel: it replaces what they left in the
  /// caches.
  void refresh() const { (void)ms_of(1); }
  [[nodiscard]] int launches_per_sample() const { return launches_; }

 private:
  /// Milliseconds a launch, of so many in a row.
  [[nodiscard]] double ms_of(int launches) const {
    return stopwatch_->milliseconds(launch_, launches) / launches;
  }

  std::unique_ptr<const Stopwatch> stopwatch_;
  Launch launch_;
  int launches_ = 1;
};

/// How many copies of their operands launches take in turn. Where launches are timed cold, they are together
/// so large that none of them is left in the L2 when its turn comes again, as a layer of a model finds its
/// weight.
struct Rotation {
  int copies = 1;
  std::int64_t bytes = 0;  ///< of all copies
  std::int64_t l2_bytes = 0;
  bool cold = false;
};
/// The rotation of operands of so many bytes: one copy where launches are not timed cold.
[[nodiscard]] Rotation rotate(std::int64_t bytes_of_one, const Device& device);

}  // namespace sparsekiln
