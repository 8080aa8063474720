#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>

/// A slow and plain reference for rounding: numbers as integers times powers of two.
namespace sparsekiln::emulator::exact {

__extension__ using Wide = __int128;
__extension__ using UnsignedWide = unsigned __int128;

/// units · 2^exponent.
struct Number {
  Wide units = 0;
  int exponent = 0;
};

enum class Mode { nearest_even, to_zero, down, up, nearest_away };

/// An IEEE 754 format: bits of its fraction and of its exponent.
struct Format {
  int fraction;
  int exponent;

  [[nodiscard]] int bits() const { return 1 + fraction + exponent; }
  [[nodiscard]] std::uint64_t infinity() const { return ((std::uint64_t{1} << exponent) - 1) << fraction; }
  [[nodiscard]] std::uint64_t sign() const { return std::uint64_t{1} << (fraction + exponent); }
  /// The exponent of the last bit of a subnormal number.
  [[nodiscard]] int least_exponent() const { return 2 - (1 << (exponent - 1)) - fraction; }
  [[nodiscard]] bool is_nan(std::uint64_t number) const { return (number & (sign() - 1)) > infinity(); }
  [[nodiscard]] bool is_finite(std::uint64_t number) const { return (number & infinity()) != infinity(); }
  [[nodiscard]] bool is_subnormal(std::uint64_t number) const {
    return (number & infinity()) == 0 && (number & (sign() - 1)) != 0;
  }
};
inline constexpr Format kF16{10, 5};
inline constexpr Format kBf16{7, 8};
inline constexpr Format kTf32{10, 8};
inline constexpr Format kF32{23, 8};
inline constexpr Format kF64{52, 11};

/// The number with these bits, which must be finite.
inline Number value(Format format, std::uint64_t bits) {
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << format.fraction) - 1);
  const int field = static_cast<int>((bits & format.infinity()) >> format.fraction);
  const Wide units = field == 0 ? fraction : fraction | std::uint64_t{1} << format.fraction;
  return {(bits & format.sign()) != 0 ? -units : units,
          format.least_exponent() + (field == 0 ? 0 : field - 1)};
}

inline int length(UnsignedWide magnitude) {
  int bits = 0;
  for (; magnitude != 0; magnitude >>= 1) ++bits;
  return bits;
}

/// Nothing where it does not fit.
inline std::optional<Number> sum(Number a, Number b) {
  if (a.units == 0) return b;
  if (b.units == 0) return a;
  if (a.exponent < b.exponent) return sum(b, a);
  const int shift = a.exponent - b.exponent;
  if (shift + length(static_cast<UnsignedWide>(a.units < 0 ? -a.units : a.units)) > 125) return std::nullopt;
  return Number{a.units * (Wide{1} << shift) + b.units, b.exponent};
}

inline Number product(Number a, Number b) { return {a.units * b.units, a.exponent + b.exponent}; }

/// The bits of a number in a format. Zero is positive.
inline std::uint64_t rounded(Format format, Mode mode, Number number) {
  if (number.units == 0) return 0;
  const bool negative = number.units < 0;
  const auto magnitude = static_cast<UnsignedWide>(negative ? -number.units : number.units);
  const int top = length(magnitude) - 1 + number.exponent;
  const int unit = std::max(top - format.fraction, format.least_exponent());
  const int shift = unit - number.exponent;
  std::uint64_t kept = 0;
  int rest = 0;  // against half a unit: 0 nothing, 1 less, 2 just as much, 3 more
  if (shift <= 0) {
    kept = static_cast<std::uint64_t>(magnitude << -shift);
  } else if (shift > 127) {
    rest = 1;
  } else {
    kept = static_cast<std::uint64_t>(magnitude >> shift);
    const UnsignedWide half = UnsignedWide{1} << (shift - 1);
    const UnsignedWide cut = magnitude & (2 * half - 1);
    rest = cut == 0 ? 0 : cut < half ? 1 : cut == half ? 2 : 3;
  }
  const bool up = mode == Mode::nearest_even   ? rest == 3 || (rest == 2 && kept % 2 == 1)
                  : mode == Mode::nearest_away ? rest >= 2
                  : mode == Mode::up           ? rest != 0 && !negative
                  : mode == Mode::down         ? rest != 0 && negative
                                               : false;
  kept += up ? 1 : 0;
  const std::uint64_t leading = std::uint64_t{1} << format.fraction;
  const auto field = static_cast<std::uint64_t>(unit - format.least_exponent() + 1);
  std::uint64_t bits = kept < leading ? kept : (field << format.fraction) + (kept - leading);
  if (bits >= format.infinity()) {
    const bool nearest = mode == Mode::nearest_even || mode == Mode::nearest_away;
    const bool outwards = nearest || (mode == Mode::up && !negative) || (mode == Mode::down && negative);
    bits = format.infinity() - (outwards ? 0 : 1);
  }
  return bits | (negative ? format.sign() : 0);
}

/// Finite numbers of a format that come near each other in magnitude often, subnormal ones, and ones near
/// overflow.
inline std::uint64_t random_number(std::mt19937_64& random, Format format) {
  const std::uint64_t fraction = std::uint64_t{1} << format.fraction;
  const std::uint64_t fields = std::uint64_t{1} << format.exponent;
  const std::uint64_t middle = fields / 2 - 1;
  std::uint64_t field = middle - 6 + random() % 12;
  switch (random() % 8) {
    case 0:
      field = random() % 3;
      break;
    case 1:
      field = fields - 2 - random() % 3;
      break;
    case 2:
      field = random() % (fields - 1);
      break;
    case 3:
      field = middle / 2 + random() % 8;
      break;
    default:
      break;
  }
  std::uint64_t low = random() % fraction;
  const unsigned shape = static_cast<unsigned>(random() % 4);
  if (shape == 0) low &= fraction - (fraction >> 3);  // few bits: ties
  if (shape == 1) low = fraction - 1 - random() % 3;  // all ones
  return (random() % 2 != 0 ? format.sign() : 0) | field << format.fraction | low;
}

}  // namespace sparsekiln::emulator::exact
