#pragma once

#include <cstdint>

namespace sparsekiln::emulator {

/// Mixes bits (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014: SplitMix64's
/// finalizer).
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/// SplitMix64: what decides orders that a program leaves open. The same on every host.
class Random {
 public:
  explicit Random(std::uint64_t seed = 0) : state_(seed) {}
  std::uint64_t next() {
    const std::uint64_t value = mixed(state_);
    state_ += 0x9e3779b97f4a7c15u;
    return value;
  }
  /// 0 to bound - 1; bound is at least 1 and far below 2³².
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>((next() >> 32) * bound >> 32);
  }
  bool coin() { return (next() >> 63) != 0; }

 private:
  std::uint64_t state_;
};

}  // namespace sparsekiln::emulator
