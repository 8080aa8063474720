#include "tests/conformance/column.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include <sparsekiln/error.h>

namespace sparsekiln::conformance {
namespace {

struct Type {
  std::string_view name;
  Kind kind;
  int bytes;
};
constexpr std::array<Type, 17> kTypes = {{
    {"b16", Kind::bits, 2},
    {"b32", Kind::bits, 4},
    {"b64", Kind::bits, 8},
    {"s16", Kind::signed_integer, 2},
    {"s32", Kind::signed_integer, 4},
    {"s64", Kind::signed_integer, 8},
    {"u16", Kind::unsigned_integer, 2},
    {"u32", Kind::unsigned_integer, 4},
    {"u64", Kind::unsigned_integer, 8},
    {"f16", Kind::f16, 2},
    {"bf16", Kind::bf16, 2},
    {"f32", Kind::f32, 4},
    {"tf32", Kind::f32, 4},
    {"f64", Kind::f64, 8},
    {"f16x2", Kind::f16x2, 4},
    {"bf16x2", Kind::bf16x2, 4},
    {"pred", Kind::predicate, 4},
}};

/// A binary format: of each the sign comes first, then the exponent, then the fraction.
struct Format {
  int exponent_bits;
  int fraction_bits;
};

Format format_of(Kind kind) {
  switch (kind) {
    case Kind::f16:
    case Kind::f16x2:
      return {5, 10};
    case Kind::bf16:
    case Kind::bf16x2:
      return {8, 7};
    case Kind::f32:
      return {8, 23};
    default:
      return {11, 52};
  }
}

bool is_pair(Kind kind) { return kind == Kind::f16x2 || kind == Kind::bf16x2; }
bool is_floating(Kind kind) {
  return is_pair(kind) || kind == Kind::f16 || kind == Kind::bf16 || kind == Kind::f32 || kind == Kind::f64;
}

std::uint64_t low_bits(int count) { return count >= 64 ? ~0ull : (1ull << count) - 1; }

double decode(Format format, std::uint64_t bits) {
  const std::uint64_t fraction = bits & low_bits(format.fraction_bits);
  const auto exponent = static_cast<int>(bits >> format.fraction_bits & low_bits(format.exponent_bits));
  const bool negative = (bits >> (format.fraction_bits + format.exponent_bits) & 1) != 0;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  double magnitude = 0;
  if (exponent == static_cast<int>(low_bits(format.exponent_bits)))
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
  else if (exponent == 0)
    magnitude = std::ldexp(static_cast<double>(fraction), 1 - bias - format.fraction_bits);
  else
    magnitude = std::ldexp(static_cast<double>(fraction | 1ull << format.fraction_bits),
                           exponent - bias - format.fraction_bits);
  return negative ? -magnitude : magnitude;
}

/// The exact bits of a number; false where the format does not have it.
bool encode(Format format, double number, std::uint64_t& bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const std::uint64_t sign = std::signbit(number) ? 1ull << (format.exponent_bits + format.fraction_bits) : 0;
  const double magnitude = std::fabs(number);
  if (std::isinf(number)) {
    bits = sign | low_bits(format.exponent_bits) << format.fraction_bits;
    return true;
  }
  if (magnitude == 0) {
    bits = sign;
    return true;
  }
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  const double scaled = std::ldexp(magnitude, format.fraction_bits - exponent);
  const auto whole = static_cast<std::uint64_t>(scaled);
  if (static_cast<double>(whole) != scaled || exponent > bias) return false;
  const bool normal = whole >> format.fraction_bits != 0;
  bits = sign | (whole & low_bits(format.fraction_bits)) |
         (normal ? static_cast<std::uint64_t>(exponent + bias) << format.fraction_bits : 0);
  return true;
}

bool is_nan(Format format, std::uint64_t bits) {
  return (bits >> format.fraction_bits & low_bits(format.exponent_bits)) == low_bits(format.exponent_bits) &&
         (bits & low_bits(format.fraction_bits)) != 0;
}

[[noreturn]] void refuse(const Column& column, std::string_view text, std::string_view why) {
  throw Error(ErrorKind::invalid_argument, fmt::format("{}: '{}' {}", column.name, text, why));
}

std::uint64_t parse_integer(const Column& column, std::string_view text) {
  const bool negative = text.starts_with('-');
  std::string_view digits = text.substr(negative ? 1 : 0);
  const bool hex = digits.starts_with("0x");
  if (hex) digits.remove_prefix(2);
  std::uint64_t value = 0;
  const auto [end, status] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
  if (status != std::errc{} || end != digits.data() + digits.size()) refuse(column, text, "is no number");
  const int width = 8 * column.bytes;
  const bool fits = negative ? value <= 1ull << (width - 1) : value <= low_bits(width);
  if (!fits) refuse(column, text, fmt::format("does not fit into {} bits", width));
  return (negative ? 0 - value : value) & low_bits(width);
}

/// One number of a floating-point format; `nan` gives the NaN of all ones but the sign, as the ISA's
/// canonical one.
std::uint64_t parse_number(const Column& column, std::string_view text, bool& any_nan) {
  const Format format = format_of(column.kind);
  if (text == "nan") {
    any_nan = true;
    return low_bits(format.exponent_bits + format.fraction_bits);
  }
  if (text.starts_with("0x") && text.find('p') == text.npos) {
    std::uint64_t bits = 0;
    const auto [end, status] = std::from_chars(text.data() + 2, text.data() + text.size(), bits, 16);
    const int width = 1 + format.exponent_bits + format.fraction_bits;
    if (status != std::errc{} || end != text.data() + text.size() || bits > low_bits(width))
      refuse(column, text, "are no bits of this type");
    return bits;
  }
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  std::uint64_t bits = 0;
  if (copy.empty() || end != copy.c_str() + copy.size() || std::isnan(number))
    refuse(column, text, "is no number");
  if (!encode(format, number, bits)) refuse(column, text, "is not exact in this type; write its bits, 0x…");
  return bits;
}

/// Bits as numbers on a line, so that neighbors differ by one and both zeros are 0.
std::int64_t position(Format format, std::uint64_t bits) {
  const int magnitude_bits = format.exponent_bits + format.fraction_bits;
  const auto magnitude = static_cast<std::int64_t>(bits & low_bits(magnitude_bits));
  return (bits >> magnitude_bits & 1) != 0 ? -magnitude : magnitude;
}

bool near(Tolerance tolerance, Format format, std::uint64_t expected, std::uint64_t got) {
  if (expected == got) return true;
  if (tolerance.measure == Tolerance::Measure::exact || is_nan(format, got)) return false;
  const double wanted = decode(format, expected);
  const double distance = std::fabs(decode(format, got) - wanted);
  switch (tolerance.measure) {
    case Tolerance::Measure::ulp:
      return std::fabs(static_cast<double>(position(format, got) - position(format, expected))) <=
             tolerance.most;
    case Tolerance::Measure::relative:
      return distance <= tolerance.most * std::fabs(wanted);
    default:
      return distance <= tolerance.most;
  }
}

bool agrees(const Column& column, std::uint64_t expected, bool any_nan, std::uint64_t got) {
  if (!is_floating(column.kind)) return expected == got;
  const Format format = format_of(column.kind);
  return any_nan ? is_nan(format, got) : near(column.tolerance, format, expected, got);
}

}  // namespace

Column column_of_type(std::string_view type) {
  for (const Type& known : kTypes)
    if (known.name == type) return {.kind = known.kind, .bytes = known.bytes};
  throw Error(ErrorKind::invalid_argument, fmt::format("type '{}' is not known", type));
}

Expected parse_value(const Column& column, std::string_view text) {
  Expected value;
  if (text == "*") {
    value.sort = Expected::Sort::anything;
  } else if (text == "-") {
    value.sort = Expected::Sort::unwritten;
  } else if (!is_floating(column.kind)) {
    value.bits = parse_integer(column, text);
    if (column.kind == Kind::predicate && value.bits > 1) refuse(column, text, "is neither 0 nor 1");
  } else if (is_pair(column.kind)) {
    const std::size_t bar = text.find('|');
    if (bar == text.npos && text.starts_with("0x")) {
      value.bits = parse_integer(column, text);
    } else {
      if (bar == text.npos) refuse(column, text, "is no pair low|high");
      value.bits = parse_number(column, text.substr(0, bar), value.any_nan);
      value.bits |= parse_number(column, text.substr(bar + 1), value.any_nan_in_high) << 16;
    }
  } else {
    value.bits = parse_number(column, text, value.any_nan);
  }
  return value;
}

std::string compare(const Column& column, const Expected& expected, std::uint64_t got) {
  std::uint64_t wanted = expected.bits;
  if (expected.sort == Expected::Sort::anything) return {};
  bool good = false;
  if (expected.sort == Expected::Sort::unwritten) {
    wanted = 0x0101'0101'0101'0101ull * kPoison & low_bits(8 * column.bytes);
    good = got == wanted;
  } else if (is_pair(column.kind)) {
    good = agrees(column, wanted & 0xffff, expected.any_nan, got & 0xffff) &&
           agrees(column, wanted >> 16, expected.any_nan_in_high, got >> 16);
  } else {
    good = agrees(column, wanted, expected.any_nan, got);
  }
  if (good) return {};
  const std::string want =
      expected.sort == Expected::Sort::unwritten ? "nothing stored" : show(column, wanted);
  return fmt::format("{} is {}, not {}", column.name, show(column, got), want);
}

std::string show(const Column& column, std::uint64_t bits) {
  const std::string hex = fmt::format("0x{:0{}x}", bits, 2 * column.bytes);
  const Format format = format_of(column.kind);
  if (is_pair(column.kind))
    return fmt::format("{} ({}|{})", hex, decode(format, bits & 0xffff), decode(format, bits >> 16));
  if (is_floating(column.kind)) return fmt::format("{} ({})", hex, decode(format, bits));
  if (column.kind == Kind::signed_integer) {
    const int unused = 64 - 8 * column.bytes;
    return fmt::format("{} ({})", hex, static_cast<std::int64_t>(bits << unused) >> unused);
  }
  return hex;
}

}  // namespace sparsekiln::conformance
