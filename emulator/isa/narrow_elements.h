#pragma once

#include <cstdint>

#include "emulator/isa/number.h"

/// Floating point of 8 bits (PTX ISA 5.2.3, "Alternate Floating-Point Data Formats").
namespace sparsekiln::emulator::number {

/// 4 bits of exponent, 3 of fraction. No infinities; NaN is 0x7f.
struct E4m3 {
  static constexpr int kFraction = 3;
  static constexpr int kBias = 7;
  static constexpr std::uint32_t kGreatest = 0x7e;  ///< 448
};
/// 5 bits of exponent, 2 of fraction: the upper half of an f16.
struct E5m2 {
  static constexpr int kFraction = 2;
  static constexpr int kBias = 15;
  static constexpr std::uint32_t kGreatest = 0x7b;  ///< 57344
};
inline constexpr std::uint32_t kNan8 = 0x7f;  ///< the canonical one, of both

/// f32 to 8 bits, rounded to nearest even. What overflows, infinities as well, becomes the greatest number
/// (.satfinite of 9.7.9.21). NaNs become canonical.
template <class Format>
[[nodiscard]] inline std::uint8_t narrow(Format, float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t kept = narrow_magnitude<Rounding::nearest_even, Format::kFraction, Format::kBias>(bits);
  const std::uint32_t finite = kept < Format::kGreatest ? kept : Format::kGreatest;
  return static_cast<std::uint8_t>(select(mask_if(is_nan(bits)), kNan8, finite | bits >> 31 << 7));
}

/// Each number is an f32.
[[nodiscard]] inline float widen(E5m2, std::uint8_t bits) {
  return widen(F16{}, static_cast<std::uint16_t>(bits << 8));
}
[[nodiscard]] inline float widen(E4m3, std::uint8_t bits) {
  // The exponent of an f16 has another bias, 15: that is a factor of 2⁸, for subnormal numbers as well.
  const std::uint32_t wide = bits;
  const float value = widen(F16{}, static_cast<std::uint16_t>((wide & 0x80u) << 8 | (wide & 0x7fu) << 7));
  return float_of(select(mask_if((wide & 0x7fu) == kNan8), kNan32, bits_of(value * 256.0f)));
}

/// `widen` of many. `count` is a multiple of 16; rows do not overlap.
void widen_row(E4m3 format, const std::uint8_t* from, float* to, int count);
void widen_row(E5m2 format, const std::uint8_t* from, float* to, int count);

}  // namespace sparsekiln::emulator::number
