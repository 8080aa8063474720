#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

namespace sparsekiln::bench {

[[nodiscard]] double wall_seconds_of(const std::function<void()>& work);
/// Wall-clock seconds, or those that count_processor_time asked for.
[[nodiscard]] double seconds_of(const std::function<void()>& work);
/// "cpu": from now on seconds_of gives the processor time of the process divided by `threads`. Throws
/// `invalid_argument` for the name of another clock.
void choose_clock(const std::optional<std::string>& clock, std::int32_t threads);

/// A pause in which OpenMP's threads leave the processors: libgomp's spin on for some milliseconds.
void settle();

/// The median; 0 if there are none.
[[nodiscard]] double median(std::vector<double> values);

/// A function that is called repeatedly; the first calls determine how often it runs in a round.
class Contestant {
 public:
  explicit Contestant(std::function<void()> call);
  /// Seconds per call (seconds_of), after one call to fill the caches.
  [[nodiscard]] double measure() const;

 private:
  std::function<void()> call_;
  int calls_ = 1;
};

/// What was measured in each round of all contestants, by name: a busy machine affects those of one round
/// alike.
class Rounds {
 public:
  void add(const std::string& name, double value) { values_[name].push_back(value); }
  /// The median of `name` over the rounds.
  [[nodiscard]] double middle(const std::string& name) const { return median(values_.at(name)); }
  /// All of them, as counters.
  void report(benchmark::State& state) const;

 private:
  std::map<std::string, std::vector<double>> values_;
};

/// Seconds that a contestant runs in a round, at least.
inline constexpr double kStretch = 4e-3;

}  // namespace sparsekiln::bench
