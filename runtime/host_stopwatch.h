#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "runtime/device.h"

namespace sparsekiln {

/// Times by the host's clock, with the wait for the launches to end included.
class HostStopwatch final : public Stopwatch {
 public:
  explicit HostStopwatch(std::function<void()> wait) : wait_(std::move(wait)) {}
  double milliseconds(const Launch& launch, int launches) const override {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < launches; ++i) launch(nullptr);
    wait_();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  std::function<void()> wait_;
};

/// How this machine's processors are timed: their caches are as warm as layers are small.
inline constexpr Timing kHostTiming{.policy = "interleaved rounds, 1", .clock = "steady clock"};

}  // namespace sparsekiln
