#pragma once

#include <cstdint>
#include <functional>

#include "runtime/device.h"

namespace sparsekiln {

/// Times the launches of one kernel, as many in a sample as last a millisecond or two, so that neither the
/// clock nor what a launch costs the host shows.
class Sampler {
 public:
  using Launch = std::function<void(void* stream)>;
  /// By the host's clock, `synchronize` included.
  [[nodiscard]] static Sampler host(Launch launch, std::function<void()> synchronize);
  /// By the clock of a CUDA device: events on a stream of its context made for this, with all launches of a
  /// sample between two of them. `launch` queues one launch on the stream that it is given.
  [[nodiscard]] static Sampler cuda(const Device& device, Launch launch);

  /// Milliseconds a launch, of one sample.
  [[nodiscard]] double sample_ms() const { return ms_of_(launches_); }
  /// One launch that is not timed, to run after those of another kernel: it replaces what they left in the
  /// caches.
  void refresh() const { (void)ms_of_(1); }
  [[nodiscard]] int launches_per_sample() const { return launches_; }

 private:
  /// Milliseconds a launch, of so many in a row.
  using MsOf = std::function<double(int)>;
  Sampler(MsOf ms_of, double sample_ms, int fewest);

  MsOf ms_of_;
  int launches_ = 1;
};

/// How many copies of their operands launches take in turn. On a GPU together they are so large that none of
/// them is left in the L2 when its turn comes again, as a layer of a model finds its weight.
struct Rotation {
  int copies = 1;
  std::int64_t bytes = 0;  ///< of all copies
  std::int64_t l2_bytes = 0;
  bool cold = false;
};
/// The rotation of operands of so many bytes. On the cpu there is one copy: its caches are as warm as layers
/// are small.
[[nodiscard]] Rotation rotate(std::int64_t bytes_of_one, const Device& device);

}  // namespace sparsekiln
