#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <sparsekiln/target.h>

#include "runtime/cpu/loaded_object.h"

namespace sparsekiln::bench {

[[nodiscard]] double wall_seconds_of(const std::function<void()>& work);
/// Wall-clock seconds, or those that count_processor_time asked for.
[[nodiscard]] double seconds_of(const std::function<void()>& work);
/// From now on seconds_of gives the processor time of the process divided by `threads`.
void count_processor_time(std::int32_t threads);

/// Independent chains of multiply-adds in registers, on all threads: what the vector units of a level can do
/// at most.
class FmaPeak {
 public:
  explicit FmaPeak(const Target& target);
  /// FLOP/s of all threads together, over about `seconds`.
  [[nodiscard]] double measure(double seconds) const;

 private:
  [[nodiscard]] static std::string module(std::int32_t lanes);
  std::int32_t lanes_;
  std::int32_t threads_;
  cpu::LoadedObject object_;
  void (*loop_)(std::int64_t, float*);
};

/// Reads a stretch of memory from end to end, vector by vector, each thread its share: what memory (or the
/// cache that the stretch fits in) can deliver to the cores.
class ReadBandwidth {
 public:
  ReadBandwidth(const Target& target, std::int64_t bytes);
  void run() const;
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(memory_.size()) * 4; }

 private:
  [[nodiscard]] static std::string module(std::int32_t lanes);
  std::int32_t lanes_;
  std::int32_t threads_;
  cpu::LoadedObject object_;
  void (*loop_)(const float*, std::int64_t, float*);
  std::vector<float> memory_;
};

}  // namespace sparsekiln::bench
