#pragma once

#include <cmath>
#include <cstdint>

/// Random draws that are the same on every machine and compiler: a stated generator and stated mappings.
/// `std::` distributions are neither.
namespace sparsekiln {

/// SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators"): a counter with
/// the step 0x9e3779b97f4a7c15 and Stafford's mixing function 13. Every seed is as good as any other.
class SplitMix64 {
 public:
  explicit constexpr SplitMix64(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t operator()() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

/// An integer of [0, bound), uniform without bias; `bound` > 0. Lemire 2019, "Fast random integer generation
/// in an interval", algorithm 5: the upper half of a 64 × 64-bit product, drawn again if the lower half is
/// among the 2^64 mod bound surplus values.
[[nodiscard]] constexpr std::uint64_t draw_below(SplitMix64& random, std::uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  Wide product = Wide{random()} * bound;
  if (static_cast<std::uint64_t>(product) < bound) {
    const std::uint64_t surplus = (0 - bound) % bound;
    while (static_cast<std::uint64_t>(product) < surplus) product = Wide{random()} * bound;
  }
  return static_cast<std::uint64_t>(product >> 64);
}

/// True with probability p. The draw is compared with the integer ⌊p · 2^64⌋, which a double gives exactly.
class Bernoulli {
 public:
  /// `p` within [0, 1].
  explicit Bernoulli(double p)
      : always_(p >= 1), threshold_(always_ ? 0 : static_cast<std::uint64_t>(std::ldexp(p, 64))) {}

  /// Takes one draw, whatever p is.
  bool operator()(SplitMix64& random) const { return random() < threshold_ || always_; }

 private:
  bool always_;
  std::uint64_t threshold_;
};

}  // namespace sparsekiln
