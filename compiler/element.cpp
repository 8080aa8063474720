#include "compiler/element.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <dlpack/dlpack.h>

#include "compiler/named.h"

namespace sparsekiln {
namespace {

// A new type is a struct with its storage and two conversions, and a row in kElements.

struct F64 {
  using Bits = std::uint64_t;
  static double widen(Bits bits) { return std::bit_cast<double>(bits); }
  static Bits round(double value) { return std::bit_cast<Bits>(value); }
};

struct F32 {
  using Bits = std::uint32_t;
  static float widen(Bits bits) { return std::bit_cast<float>(bits); }
  static Bits round(float value) { return std::bit_cast<Bits>(value); }
};

struct Bf16 {
  using Bits = std::uint16_t;
  static float widen(Bits bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
  static Bits round(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<Bits>((bits >> 16) | 0x40u);
    return static_cast<Bits>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
};

struct F16 {
  using Bits = std::uint16_t;
  static float widen(Bits bits) {
    const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fu;
    const std::uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0) {
      const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
      return sign != 0 ? -magnitude : magnitude;
    }
    if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
  }
  static Bits round(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<Bits>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
    if (magnitude >= 0x477ff000u)
      return static_cast<Bits>(sign | 0x7c00u);  // 65520 and above round to infinity
    if (magnitude < 0x38800000u) {
      // Below 2^-14 the spacing is 2^-24, which is that of binary32 just above 0.5: the addition rounds.
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      return static_cast<Bits>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
    }
    const std::uint32_t rebiased = magnitude - (112u << 23);
    return static_cast<Bits>(sign | ((rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13));
  }
};

/// A float of 8 bits (OCP 8-bit Floating Point Specification 1.0, section 5) with kExponentBits bits of
/// exponent. kInfinite: the largest exponent is that of infinities and NaNs, as in IEEE 754; otherwise there
/// are no infinities, and a NaN is all bits but the sign.
template <int kExponentBits, bool kInfinite>
struct Float8 {
  using Bits = std::uint8_t;
  static constexpr int kFractionBits = 7 - kExponentBits;
  static constexpr int kShift = 23 - kFractionBits;  ///< from the place of its fraction to binary32's
  static constexpr std::uint32_t kRebias = (127u - ((1u << (kExponentBits - 1)) - 1)) << 23;
  static constexpr std::uint32_t kFraction = (1u << kFractionBits) - 1;
  /// The magnitude of what is too large: infinity, or the largest number.
  static constexpr std::uint32_t kMost = kInfinite ? 0x7fu - kFraction : 0x7eu;
  static constexpr std::uint32_t kNaN = kInfinite ? kMost | 1u << (kFractionBits - 1) : 0x7fu;

  static float widen(Bits bits) {
    const std::uint32_t sign = std::uint32_t{bits & 0x80u} << 24;
    const std::uint32_t magnitude = bits & 0x7fu;
    if (magnitude > kMost)
      return std::bit_cast<float>(sign | 0x7fc00000u | (magnitude & kFraction) << kShift);
    if (kInfinite && magnitude == kMost) return std::bit_cast<float>(sign | 0x7f800000u);
    if (magnitude > kFraction) return std::bit_cast<float>(sign | ((magnitude << kShift) + kRebias));
    const float subnormal = static_cast<float>(magnitude) * std::bit_cast<float>(kLeast);
    return sign != 0 ? -subnormal : subnormal;
  }
  static Bits round(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 24) & 0x80u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<Bits>(sign | kNaN);
    if (magnitude < kRebias + (1u << 23)) {
      // The spacing of subnormals is that of binary32 from kShifted on: the addition rounds.
      const float shifted = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kShifted);
      return static_cast<Bits>(sign | (std::bit_cast<std::uint32_t>(shifted) - kShifted));
    }
    const std::uint32_t rebiased = magnitude - kRebias;
    const std::uint32_t odd = (rebiased >> kShift) & 1u;
    const std::uint32_t rounded = (rebiased + ((1u << (kShift - 1)) - 1) + odd) >> kShift;
    return static_cast<Bits>(sign | std::min(rounded, kMost));
  }

 private:
  /// The distance of subnormals, and 2^23 times that.
  static constexpr std::uint32_t kLeast = kRebias + (1u << 23) - (std::uint32_t{kFractionBits} << 23);
  static constexpr std::uint32_t kShifted = kLeast + (23u << 23);
};
using E4m3 = Float8<4, false>;
using E5m2 = Float8<5, true>;

/// The nearest integer, the least one for a NaN, as x86's conversions have it.
template <class Integer, class Float>
Integer nearest_integer(Float value) {
  using Limits = std::numeric_limits<Integer>;
  if (!(value > static_cast<Float>(Limits::min()))) return Limits::min();
  if (value >= static_cast<Float>(Limits::max())) return Limits::max();
  return static_cast<Integer>(std::nearbyint(value));
}

struct I8 {
  using Bits = std::int8_t;
  static float widen(Bits bits) { return bits; }
  static Bits round(float value) { return nearest_integer<Bits>(value); }
};

struct I32 {
  using Bits = std::int32_t;
  static double widen(Bits bits) { return bits; }
  static Bits round(double value) { return nearest_integer<Bits>(value); }
};

template <class Type, class To>
void load_all(const void* data, std::int64_t first, std::span<To> to) {
  const auto* from = static_cast<const std::byte*>(data) + first * std::int64_t{sizeof(typename Type::Bits)};
  for (std::size_t i = 0; i < to.size(); ++i) {
    typename Type::Bits bits;
    std::memcpy(&bits, from + i * sizeof(bits), sizeof(bits));
    to[i] = static_cast<To>(Type::widen(bits));
  }
}

template <class Type, class From>
void store_all(std::span<const From> values, void* data, std::int64_t first) {
  using Arithmetic = decltype(Type::widen(0));
  auto* to = static_cast<std::byte*>(data) + first * std::int64_t{sizeof(typename Type::Bits)};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const typename Type::Bits bits = Type::round(static_cast<Arithmetic>(values[i]));
    std::memcpy(to + i * sizeof(bits), &bits, sizeof(bits));
  }
}

template <class Type>
constexpr HostConversions conversions_of() {
  return {load_all<Type, float>, load_all<Type, double>, store_all<Type, float>, store_all<Type, double>};
}

// kDLFloat8_e4m3fn and kDLFloat8_e5m2 of DLPack 1.1, which Debian 12's headers do not have.
constexpr std::uint8_t kFloat8E4m3fn = 10;
constexpr std::uint8_t kFloat8E5m2 = 12;

// Types of what is computed, the usual one first.
constexpr std::array kOfF32{DType::f32};
constexpr std::array kOfF16{DType::f16, DType::f32};
constexpr std::array kOfBf16{DType::bf16, DType::f32};
constexpr std::array kOfF64{DType::f64};
constexpr std::array kOfFloat8{DType::bf16, DType::f16, DType::f32};
constexpr std::array kOfI8{DType::i32, DType::f16, DType::f32, DType::bf16};

constexpr std::array kElements = {
    Element{.value = DType::f32,
            .name = "f32",
            .array_name = "float32",
            .bytes = 4,
            .arithmetic = DType::f32,
            .integer = false,
            .forward_only = false,
            .results = kOfF32,
            .format = {24, 0x1p-24, 0x1.fffffep127, 0x1p-126, 0x1p-149},
            .host = conversions_of<F32>(),
            .dlpack = {kDLFloat, 32},
            .cuda = {"Tf32Product", "F32Output", "F32Operand", 80},
            .cpu = CpuPasses::tiled,
            .unlikely_nan = 0x7fd5a5a5},
    Element{.value = DType::f16,
            .name = "f16",
            .array_name = "float16",
            .bytes = 2,
            .arithmetic = DType::f32,
            .integer = false,
            .forward_only = false,
            .results = kOfF16,
            .format = {11, 0x1p-11, 65504.0, 0x1p-14, 0x1p-24},
            .host = conversions_of<F16>(),
            .dlpack = {kDLFloat, 16},
            .cuda = {"F16Product", "F16Output", "F16Operand", 75},
            .cpu = CpuPasses::tiled,
            .unlikely_nan = 0x7f35},
    Element{.value = DType::bf16,
            .name = "bf16",
            .array_name = "bfloat16",
            .bytes = 2,
            .arithmetic = DType::f32,
            .integer = false,
            .forward_only = false,
            .results = kOfBf16,
            .format = {8, 0x1p-8, 0x1.fep127, 0x1p-126, 0x1p-133},
            .host = conversions_of<Bf16>(),
            .dlpack = {kDLBfloat, 16},
            .cuda = {"Bf16Product", "Bf16Output", "Bf16Operand", 80},
            .cpu = CpuPasses::tiled,
            .unlikely_nan = 0x7fd5},
    Element{.value = DType::f64,
            .name = "f64",
            .array_name = "float64",
            .bytes = 8,
            .arithmetic = DType::f64,
            .integer = false,
            .forward_only = false,
            .results = kOfF64,
            .format = {53, 0x1p-53, 0x1.fffffffffffffp1023, 0x1p-1022, 0x1p-1074},
            .host = conversions_of<F64>(),
            .dlpack = {kDLFloat, 64},
            .cuda = {},
            .cpu = CpuPasses::plain,
            .unlikely_nan = 0x7ffda5a5a5a5a5a5},
    Element{.value = DType::e4m3,
            .name = "e4m3",
            .array_name = "float8_e4m3fn",
            .bytes = 1,
            .arithmetic = DType::f32,
            .integer = false,
            .forward_only = true,
            .results = kOfFloat8,
            .format = {4, 0x1p-4, 448.0, 0x1p-6, 0x1p-9},
            .host = conversions_of<E4m3>(),
            .dlpack = {kFloat8E4m3fn, 8},
            .cuda = {"E4m3Product", "", "", 89},
            .cpu = CpuPasses::plain,
            .unlikely_nan = 0xff},
    Element{.value = DType::e5m2,
            .name = "e5m2",
            .array_name = "float8_e5m2",
            .bytes = 1,
            .arithmetic = DType::f32,
            .integer = false,
            .forward_only = true,
            .results = kOfFloat8,
            .format = {3, 0x1p-3, 57344.0, 0x1p-14, 0x1p-16},
            .host = conversions_of<E5m2>(),
            .dlpack = {kFloat8E5m2, 8},
            .cuda = {"E5m2Product", "", "", 89},
            .cpu = CpuPasses::plain,
            .unlikely_nan = 0x7d},
    Element{.value = DType::i8,
            .name = "i8",
            .array_name = "int8",
            .bytes = 1,
            .arithmetic = DType::f32,
            .integer = true,
            .forward_only = true,
            .results = kOfI8,
            .format = {7, 0x1p-7, 127.0, 1, 1},
            .host = conversions_of<I8>(),
            .dlpack = {kDLInt, 8},
            .cuda = {"I8Product", "", "", 80},
            .cpu = CpuPasses::plain,
            .unlikely_nan = 0x80},
    Element{.value = DType::i32,
            .name = "i32",
            .array_name = "int32",
            .bytes = 4,
            .arithmetic = DType::f64,
            .integer = true,
            .forward_only = true,
            .results = {},
            .format = {31, 0x1p-31, 2147483647.0, 1, 1},
            .host = conversions_of<I32>(),
            .dlpack = {kDLInt, 32},
            .cuda = {"", "I32Output", ""},
            .cpu = CpuPasses::plain,
            .unlikely_nan = 0x85a5a5a5},
};

/// Whether the value is an enumerator. The compiler warns of one that has no line here.
constexpr bool is_enumerator(DType type) {
  switch (type) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::f64:
    case DType::e4m3:
    case DType::e5m2:
    case DType::i8:
    case DType::i32:
      return true;
  }
  return false;
}

constexpr bool in_order() {
  for (std::size_t i = 0; i < kElements.size(); ++i)
    if (static_cast<std::size_t>(kElements[i].value) != i) return false;
  return true;
}
static_assert(in_order(), "rows are found by their place");
static_assert(kElements.back().value == kLastDType && !is_enumerator(DType{kElements.size()}),
              "every element type has a row, and kLastDType is the last");

}  // namespace

std::span<const Element> elements() { return kElements; }
const Element& element(DType type) { return kElements.at(static_cast<std::size_t>(type)); }

std::string_view name(DType type) { return name_in(kElements, type); }
std::size_t size_of(DType type) { return element(type).bytes; }
DType sum_type(DType type) { return element(type).arithmetic; }
DType result_type(DType type) {
  const std::span<const DType> results = element(type).results;
  return results.empty() ? type : results.front();
}
DType parse_dtype(std::string_view text) { return parse_in(kElements, text, "data type"); }

float to_float(DType type, const void* data, std::int64_t i) {
  float value = 0;
  element(type).host.to_floats(data, i, {&value, 1});
  return value;
}

void to_float(DType type, const void* data, std::int64_t first, std::span<float> to) {
  element(type).host.to_floats(data, first, to);
}

double to_double(DType type, const void* data, std::int64_t i) {
  double value = 0;
  element(type).host.to_doubles(data, i, {&value, 1});
  return value;
}

void to_double(DType type, const void* data, std::int64_t first, std::span<double> to) {
  element(type).host.to_doubles(data, first, to);
}

void store(DType type, double value, void* data, std::int64_t i) {
  element(type).host.from_doubles({&value, 1}, data, i);
}

void store(DType type, std::span<const float> values, void* data, std::int64_t first) {
  element(type).host.from_floats(values, data, first);
}

void store(DType type, std::span<const double> values, void* data, std::int64_t first) {
  element(type).host.from_doubles(values, data, first);
}

float rounded_to_tf32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  constexpr std::uint32_t kExponent = 0x7f800000;
  return (bits & kExponent) == kExponent ? value : std::bit_cast<float>((bits + 0x1000) & ~0x1fffu);
}

}  // namespace sparsekiln
