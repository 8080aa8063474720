#pragma once

#include <algorithm>
#include <cstdint>

#include "emulator/isa/number.h"

/// What two values become in memory (PTX ISA 9.7.13.5, 9.7.9.25.4) or across lanes (9.7.9.7). Sums wrap
/// around.
namespace sparsekiln::emulator::combination {

template <class T>
[[nodiscard]] inline T add(T a, T b) {
  return static_cast<T>(a + b);
}
/// f32 in global memory: subnormal numbers count as zeros, and none results.
[[nodiscard]] inline float add_flushed(float a, float b) {
  return number::flushed(number::flushed(a) + number::flushed(b));
}
/// f16 and bf16: the sum in f32, rounded, is the sum rounded once (24 ≥ 2 · 11 + 2).
template <class Format>
[[nodiscard]] inline std::uint16_t add_half(std::uint16_t a, std::uint16_t b) {
  return number::narrow<number::Rounding::nearest_even>(
      Format{}, number::widen(Format{}, a) + number::widen(Format{}, b));
}
template <class T>
[[nodiscard]] inline T least(T a, T b) {
  return std::min(a, b);
}
template <class T>
[[nodiscard]] inline T greatest(T a, T b) {
  return std::max(a, b);
}
template <class T>
[[nodiscard]] inline T bit_and(T a, T b) {
  return a & b;
}
template <class T>
[[nodiscard]] inline T bit_or(T a, T b) {
  return a | b;
}
template <class T>
[[nodiscard]] inline T bit_xor(T a, T b) {
  return a ^ b;
}
[[nodiscard]] inline std::uint32_t increment(std::uint32_t a, std::uint32_t b) { return a >= b ? 0 : a + 1; }
[[nodiscard]] inline std::uint32_t decrement(std::uint32_t a, std::uint32_t b) {
  return a == 0 || a > b ? b : a - 1;
}

}  // namespace sparsekiln::emulator::combination
