#include "bench/contest.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>
#include <utility>

#include <sparsekiln/error.h>

namespace sparsekiln::bench {
namespace {

std::int32_t threads_to_share = 0;  ///< of processor time; 0: wall-clock time

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

double wall_seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double seconds_of(const std::function<void()>& work) {
  if (threads_to_share == 0) return wall_seconds_of(work);
  const double begin = processor_seconds();
  work();
  return (processor_seconds() - begin) / threads_to_share;
}

void choose_clock(const std::optional<std::string>& clock, std::int32_t threads) {
  if (!clock) return;
  if (*clock != "cpu")
    throw Error(ErrorKind::invalid_argument, "--clock " + *clock + ": cpu is the one that can be chosen");
  threads_to_share = threads;
}

void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(15)); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

Contestant::Contestant(std::function<void()> call) : call_(std::move(call)) {
  call_();
  const double once = seconds_of(call_);
  calls_ = static_cast<int>(std::clamp(kStretch / std::max(once, 1e-9), 1.0, 1000.0));
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

}  // namespace sparsekiln::bench
