#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

/// Numbers of fewer bits than the host has, and how they are rounded. Everything here is branch-free on
/// values and inlines into loops over lanes that GCC turns into vectors; it rests on the host's IEEE 754 f32
/// and f64 in round-to-nearest-even with subnormals, and on nothing else (no F16C, no FMA).
namespace sparsekiln::emulator::number {

/// Rounding modifiers of the PTX ISA (9.7.3, 9.7.9.21).
enum class Rounding : std::uint8_t {
  nearest_even,  ///< .rn
  to_zero,       ///< .rz
  down,          ///< .rm
  up,            ///< .rp
  nearest_away,  ///< .rna: ties away from zero
  to_odd,  ///< no modifier: keeps in the last bit that something was lost, so that a second rounding is right
};

/// The NaNs that instructions make where the ISA says "canonical", and where it leaves an f32 NaN unspecified
/// (9.7.3): hardware makes these.
inline constexpr std::uint32_t kNan32 = 0x7fffffff;
inline constexpr std::uint16_t kNan16 = 0x7fff;  ///< of f16 and bf16

inline constexpr std::uint32_t kSign32 = 0x80000000;
inline constexpr std::uint32_t kInfinity32 = 0x7f800000;
inline constexpr std::uint32_t kLeastNormal32 = 0x00800000;

[[nodiscard]] inline std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
[[nodiscard]] inline float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// All bits where `holds`. Conditions are masks here: from `?:` and `&&` GCC makes branches that it cannot
/// take out of a loop again.
[[nodiscard]] inline std::uint32_t mask_if(bool holds) { return 0u - static_cast<std::uint32_t>(holds); }
[[nodiscard]] inline std::uint32_t select(std::uint32_t mask, std::uint32_t where_set,
                                          std::uint32_t otherwise) {
  return otherwise ^ ((otherwise ^ where_set) & mask);
}

[[nodiscard]] inline bool is_nan(std::uint32_t bits) { return (bits & ~kSign32) > kInfinity32; }

/// Any NaN becomes the canonical one.
[[nodiscard]] inline float canonical(float value) { return value != value ? float_of(kNan32) : value; }

/// .ftz: a subnormal number becomes a zero of its sign (9.7.3).
[[nodiscard]] inline float flushed(float value) {
  const std::uint32_t bits = bits_of(value);
  return float_of((bits & ~kSign32) < kLeastNormal32 ? bits & kSign32 : bits);
}

/// .sat: into [0, 1]; NaN and -0 become +0 (9.7.3).
template <class T>
[[nodiscard]] inline T saturated(T value) {
  const T low = value > T{0} ? value : T{0};
  return low < T{1} ? low : T{1};
}

/// A format of 16 bits: a sign, an exponent and `Fraction` bits.
template <int Fraction>
struct Format16 {
  static constexpr int kFraction = Fraction;
  static constexpr int kBias = (1 << (14 - Fraction)) - 1;
  static constexpr std::uint32_t kInfinity = 0x7fffu & ~((1u << Fraction) - 1u);
};
using F16 = Format16<10>;
using Bf16 = Format16<7>;

/// Every f16 is an f32. A NaN keeps its payload and becomes quiet.
[[nodiscard]] inline float widen(F16, std::uint16_t half) {
  const std::uint32_t wide = half;
  const std::uint32_t magnitude = wide << 13 & 0x0fffe000u;
  const std::uint32_t normal = magnitude + (112u << 23);
  // 2^-14 plus the fraction, less 2^-14.
  const std::uint32_t subnormal = bits_of(float_of(magnitude + (113u << 23)) - float_of(113u << 23));
  const std::uint32_t quiet = mask_if(magnitude > 0x0f800000u) & 0x00400000u;
  const std::uint32_t finite = select(mask_if(magnitude < kLeastNormal32), subnormal, normal);
  const std::uint32_t value =
      select(mask_if(magnitude >= 0x0f800000u), magnitude | kInfinity32 | quiet, finite);
  return float_of(value | (wide & 0x8000u) << 16);
}

/// A bf16 is the upper half of an f32.
[[nodiscard]] inline float widen(Bf16, std::uint16_t half) { return float_of(std::uint32_t{half} << 16); }

/// 1 where `kept`, of whose magnitude `rest` was cut off, moves one up; `half` is what half a unit is.
template <Rounding R>
[[nodiscard]] inline std::uint32_t increment(std::uint32_t kept, std::uint32_t rest, std::uint32_t half,
                                             std::uint32_t negative) {
  if constexpr (R == Rounding::nearest_even)
    return 1u & (mask_if(rest > half) | (mask_if(rest == half) & kept));
  else if constexpr (R == Rounding::nearest_away)
    return 1u & mask_if(rest >= half);
  else if constexpr (R == Rounding::up)
    return mask_if(rest != 0) & (negative ^ 1u);
  else if constexpr (R == Rounding::down)
    return mask_if(rest != 0) & negative;
  else
    return 0;
}

/// The magnitude of the f32 with these bits in a format of `Fraction` bits and a bias, rounded. What
/// overflows runs on into exponents that the format does not have.
template <Rounding R, int Fraction, int Bias>
[[nodiscard]] inline std::uint32_t narrow_magnitude(std::uint32_t bits) {
  constexpr std::uint32_t kDropped = 23 - Fraction;
  constexpr std::uint32_t kRebias = 127 - Bias;
  const std::uint32_t magnitude = bits & ~kSign32;
  const std::uint32_t exponent = magnitude >> 23;
  // Below the least normal number of the format, more bits are cut off, and the leading one is written out.
  const std::uint32_t subnormal = mask_if(exponent <= kRebias);
  const std::uint32_t has_leading = mask_if(exponent != 0);
  const std::uint32_t significand = select(
      subnormal, (magnitude & 0x007fffffu) | (has_leading & kLeastNormal32), magnitude - (kRebias << 23));
  const std::uint32_t wanted = kDropped + kRebias + 1 - select(has_leading, exponent, 1u);
  const std::uint32_t shift = select(subnormal, wanted < 31u ? wanted : 31u, kDropped);
  std::uint32_t kept = significand >> shift;
  const std::uint32_t rest = significand & ((1u << shift) - 1u);
  kept += increment<R>(kept, rest, 1u << (shift - 1), bits >> 31);
  if constexpr (R == Rounding::to_odd) kept |= 1u & mask_if(rest != 0);
  return kept;
}

/// f32 to a format of 16 bits. What overflows becomes an infinity, or the largest finite number where the
/// rounding leads there. NaNs become canonical.
template <Rounding R, int Fraction>
[[nodiscard]] inline std::uint16_t narrow(Format16<Fraction>, float value) {
  using Format = Format16<Fraction>;
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t negative = bits >> 31;
  const std::uint32_t magnitude = bits & ~kSign32;
  std::uint32_t kept = narrow_magnitude<R, Fraction, Format::kBias>(bits);
  std::uint32_t limit = Format::kInfinity;
  if constexpr (R == Rounding::to_zero || R == Rounding::to_odd) limit -= 1;
  if constexpr (R == Rounding::up) limit -= negative;
  if constexpr (R == Rounding::down) limit -= negative ^ 1u;
  kept = kept < limit ? kept : limit;
  kept = select(mask_if(magnitude == kInfinity32), Format::kInfinity, kept);
  return static_cast<std::uint16_t>(select(mask_if(magnitude > kInfinity32), kNan16, kept | negative << 15));
}

/// f32 with the fraction of a tf32, 10 bits; the other 13 are zero. NaNs become canonical.
template <Rounding R>
[[nodiscard]] inline std::uint32_t narrow_tf32(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rest = bits & 0x1fffu;
  const std::uint32_t kept = (bits >> 13) + increment<R>(bits >> 13, rest, 0x1000u, bits >> 31);
  return select(mask_if(is_nan(bits)), kNan32, kept << 13);
}

/// f64 to f32. NaNs become canonical.
template <Rounding R>
[[nodiscard]] inline float narrow_f64(double value) {
  const auto nearest = static_cast<float>(value);
  if constexpr (R == Rounding::nearest_even) {
    return canonical(nearest);
  } else {
    const auto back = static_cast<double>(nearest);
    const std::uint32_t bits = bits_of(nearest);
    // Neither of a NaN, nor of an infinity, which equals `back`.
    const std::uint32_t above = mask_if(back > value);
    const std::uint32_t below = mask_if(back < value);
    const std::uint32_t negative = 0u - (bits >> 31);
    const std::uint32_t grew = select(negative, below, above);
    const std::uint32_t shrank = select(negative, above, below);
    std::uint32_t outwards = 0;
    std::uint32_t inwards = 0;
    if constexpr (R == Rounding::to_zero) inwards = grew;
    if constexpr (R == Rounding::up) {
      outwards = shrank & ~negative;
      inwards = grew & negative;
    }
    if constexpr (R == Rounding::down) {
      outwards = shrank & negative;
      inwards = grew & ~negative;
    }
    if constexpr (R == Rounding::to_odd) {
      const std::uint32_t even = (bits & 1u) - 1u;
      outwards = shrank & even;
      inwards = grew & even;
    }
    // The neighbor away from zero or towards it has the next bits, also for zero and infinity.
    return canonical(float_of(bits - outwards + inwards));
  }
}

/// The sum of two numbers, rounded to odd: exact once it is rounded to two bits fewer (Boldo and Melquiond,
/// "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008). No finite
/// sum may overflow.
template <class T>
[[nodiscard]] inline T add_to_odd(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  using Unsigned = std::make_unsigned_t<Bits>;
  constexpr int kSignBit = 8 * sizeof(T) - 1;
  constexpr auto kInfinity = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  const T sum = a + b;
  const T from_b = sum - a;
  const T error = (a - (sum - from_b)) + (b - from_b);  // exact (Knuth's TwoSum); NaN beside infinities
  const auto bits = std::bit_cast<Unsigned>(sum);
  const auto error_bits = std::bit_cast<Unsigned>(error);
  const auto magnitude = static_cast<Bits>(error_bits & ~(Unsigned{1} << kSignBit));
  const Unsigned inexact = (magnitude > 0 ? Unsigned{1} : 0) & (magnitude < kInfinity ? Unsigned{1} : 0);
  const Unsigned step = inexact & ~bits;                           // 1 where the last bit is even
  const Unsigned towards = 0 - ((error_bits ^ bits) >> kSignBit);  // zero, where the signs differ
  return std::bit_cast<T>(bits + ((step ^ towards) - towards));
}

}  // namespace sparsekiln::emulator::number
