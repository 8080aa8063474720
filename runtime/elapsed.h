#pragma once

#include <chrono>

namespace sparsekiln {

/// Wall time since this was made, in milliseconds.
class Elapsed {
 public:
  [[nodiscard]] double ms() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace sparsekiln
