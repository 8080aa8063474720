#pragma once

#include <functional>
#include <vector>

namespace sparsekiln::tools {

/// Times of one launch, in milliseconds.
struct Timing {
  double median_ms = 0;
  double p20_ms = 0;
  double p80_ms = 0;
  int samples = 0;
  int launches_per_sample = 1;
};

/// Of the milliseconds of one launch that each sample gave.
[[nodiscard]] Timing summarize(std::vector<double> times, int launches_per_sample);

/// Warms up, then takes `samples` times. A sample holds as many launches as last about a millisecond, so that
/// the clock and the final `synchronize` do not show.
[[nodiscard]] Timing time_launches(const std::function<void()>& launch,
                                   const std::function<void()>& synchronize, int samples);

}  // namespace sparsekiln::tools
