#include "emulator/isa/conversion_value.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace sparsekiln::emulator {
namespace {

using number::Rounding;
using ptx::Type;

/// The low `bits`, the sign repeated.
std::uint64_t extended(std::uint64_t value, int bits, bool is_signed) {
  if (bits == 64) return value;
  const std::uint64_t low = value & ((std::uint64_t{1} << bits) - 1);
  const std::uint64_t sign = is_signed ? std::uint64_t{1} << (bits - 1) : 0;
  return (low ^ sign) - sign;
}

/// `extended` of a type, or clamped to its range first. `negative`: the value is below zero.
std::uint64_t integer_result(Type to, bool sat, std::uint64_t value, bool negative) {
  const int bits = ptx::bits(to);
  if (sat) {
    const bool is_signed = ptx::is_signed(to);
    const std::uint64_t greatest = ~std::uint64_t{0} >> (64 - bits + (is_signed ? 1 : 0));
    if (!negative) {
      value = std::min(value, greatest);
    } else {
      const auto least = is_signed ? -static_cast<std::int64_t>(greatest) - 1 : std::int64_t{0};
      value = static_cast<std::uint64_t>(std::max(static_cast<std::int64_t>(value), least));
    }
  }
  return extended(value, bits, ptx::is_signed(to));
}

/// A whole number to f64.
template <Rounding R>
double from_magnitude(std::uint64_t magnitude, bool negative) {
  const int excess = 11 - std::countl_zero(magnitude);  // bits beyond the 53 of a double
  if (excess <= 0) {
    const auto exact = static_cast<double>(magnitude);
    return negative ? -exact : exact;
  }
  std::uint64_t kept = magnitude >> excess;
  const auto rest = static_cast<std::uint32_t>(magnitude & ((1u << excess) - 1));
  kept += number::increment<R>(static_cast<std::uint32_t>(kept & 1), rest, 1u << (excess - 1),
                               negative ? 1u : 0u);
  if (R == Rounding::to_odd && rest != 0) kept |= 1;
  const double result = static_cast<double>(kept) * static_cast<double>(1u << excess);
  return negative ? -result : result;
}

double from_integer(Rounding rounding, std::uint64_t value, bool negative) {
  const std::uint64_t magnitude = negative ? 0 - value : value;
  return with_rounding(rounding, [=]<Rounding R>() { return from_magnitude<R>(magnitude, negative); });
}

double source_number(const Conversion& conversion, std::uint64_t bits) {
  switch (conversion.from) {
    case Type::f16:
      return static_cast<double>(number::widen(number::F16{}, static_cast<std::uint16_t>(bits)));
    case Type::bf16:
      return static_cast<double>(number::widen(number::Bf16{}, static_cast<std::uint16_t>(bits)));
    case Type::f32: {
      const float value = number::float_of(static_cast<std::uint32_t>(bits));
      return static_cast<double>(conversion.ftz ? number::flushed(value) : value);
    }
    default:
      return std::bit_cast<double>(bits);
  }
}

double to_integral(Rounding rounding, double value) {
  switch (rounding) {
    case Rounding::to_zero:
      return std::trunc(value);
    case Rounding::down:
      return std::floor(value);
    case Rounding::up:
      return std::ceil(value);
    default:
      return std::nearbyint(value);
  }
}

std::uint64_t integer_of(const Conversion& conversion, double value) {
  const int bits = ptx::bits(conversion.to);
  if (std::isnan(value)) {
    const bool zero = conversion.from != Type::f64 && bits != 64;
    return zero ? 0 : extended(std::uint64_t{1} << (bits - 1), bits, ptx::is_signed(conversion.to));
  }
  const double whole = to_integral(conversion.rounding, value);
  if (whole < 0.0) {
    const auto clamped = whole < -0x1p63 ? -0x1p63 : whole;
    return integer_result(conversion.to, true, static_cast<std::uint64_t>(static_cast<std::int64_t>(clamped)),
                          true);
  }
  const std::uint64_t magnitude = whole >= 0x1p64 ? ~std::uint64_t{0} : static_cast<std::uint64_t>(whole);
  return integer_result(conversion.to, true, magnitude, false);
}

template <class Format>
std::uint64_t narrow(Format format, const Conversion& conversion, double value) {
  const float odd = number::narrow_f64<Rounding::to_odd>(value);
  const std::uint32_t result = with_rounding(
      conversion.rounding, [=]<Rounding R>() -> std::uint32_t { return number::narrow<R>(format, odd); });
  const bool infinite = (result & 0x7fffu) == Format::kInfinity;
  return conversion.satfinite && infinite ? result - 1 : result;
}

std::uint64_t float_result(const Conversion& conversion, double value) {
  switch (conversion.to) {
    case Type::f16:
      return narrow(number::F16{}, conversion, value);
    case Type::bf16:
      return narrow(number::Bf16{}, conversion, value);
    case Type::f32: {
      const float result =
          with_rounding(conversion.rounding, [=]<Rounding R>() { return number::narrow_f64<R>(value); });
      return number::bits_of(conversion.ftz ? number::flushed(result) : result);
    }
    default:
      return std::bit_cast<std::uint64_t>(value);
  }
}

std::uint64_t float_of(const Conversion& conversion, double value) {
  if (conversion.to_integral) value = to_integral(conversion.rounding, value);
  if (conversion.sat) value = number::saturated(value);
  if (conversion.relu && std::signbit(value) && !std::isnan(value)) value = 0.0;
  return float_result(conversion, value);
}

}  // namespace

std::uint64_t convert(const Conversion& conversion, std::uint64_t bits) {
  const bool to_float = ptx::is_float(conversion.to);
  if (ptx::is_float(conversion.from)) {
    const double value = source_number(conversion, bits);
    return to_float ? float_of(conversion, value) : integer_of(conversion, value);
  }
  const bool is_signed = ptx::is_signed(conversion.from);
  const std::uint64_t value = extended(bits, ptx::bits(conversion.from), is_signed);
  const bool negative = is_signed && static_cast<std::int64_t>(value) < 0;
  if (!to_float) return integer_result(conversion.to, conversion.sat, value, negative);
  // The last bit of an f64 takes the rounding of the instruction; what is narrower is rounded from an odd
  // f64.
  const Rounding first = conversion.to == Type::f64 ? conversion.rounding : Rounding::to_odd;
  return float_of(conversion, from_integer(first, value, negative));
}

}  // namespace sparsekiln::emulator
