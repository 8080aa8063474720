#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sparsekiln/target.h>

#include "runtime/cpu/loaded_object.h"

namespace sparsekiln::cpu {

/// Independent chains of multiply-adds in registers, on all threads: what the vector units of a level can do
/// at most.
class FmaPeak {
 public:
  explicit FmaPeak(const Target& target);
  /// Turns of the chains that take a thread about so many seconds.
  [[nodiscard]] static std::int64_t turns(double seconds);
  /// Goes through them on all threads.
  void run(std::int64_t turns) const;
  /// Floating-point operations of a run, two a multiply-add.
  [[nodiscard]] double flops(std::int64_t turns) const;

 private:
  [[nodiscard]] static std::string module(std::int32_t lanes);
  std::int32_t lanes_;
  std::int32_t threads_;
  LoadedObject object_;
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
  LoadedObject object_;
  void (*loop_)(const float*, std::int64_t, float*);
  std::vector<float> memory_;
};

/// The most that a machine does of `flops` or `bytes` a second: the best of a few short runs, for others may
/// be at work. GFLOP/s of float32, and GB/s from a stretch of so many bytes (256 MiB at most).
struct MeasuredPeak {
  double gflops = 0;
  double gbytes = 0;
};
[[nodiscard]] MeasuredPeak measure_peak(const Target& target, std::int64_t bytes);

}  // namespace sparsekiln::cpu
