#include "bench/contest.h"

#include <algorithm>
#include <utility>

#include "bench/machine_peak.h"

namespace sparsekiln::bench {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

Contestant::Contestant(std::function<void()> call) : call_(std::move(call)) {
  call_();
  const double once = seconds_of(call_);
  calls_ = std::clamp(static_cast<int>(kStretch / once), 1, 1000);
}

double Contestant::measure() const {
  if (calls_ > 1) call_();
  return seconds_of([&] {
           for (int i = 0; i < calls_; ++i) call_();
         }) /
         calls_;
}

void Rounds::report(benchmark::State& state) const {
  for (const auto& [name, values] : values_) state.counters[name] = median(values);
}

std::optional<std::string> take(std::string_view option, int& argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(option)) continue;
    std::copy(argv + i + 1, argv + argc, argv + i);
    --argc;
    return std::string(argument.substr(option.size()));
  }
  return std::nullopt;
}

}  // namespace sparsekiln::bench
