#include "compiler/element.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace sparsekiln {
namespace {

// A new type is a struct with its storage and two conversions, and a row in kElements.

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

template <class Type>
void load_all(const void* data, std::int64_t first, std::span<float> to) {
  const auto* from = static_cast<const std::byte*>(data) + first * std::int64_t{sizeof(typename Type::Bits)};
  for (std::size_t i = 0; i < to.size(); ++i) {
    typename Type::Bits bits;
    std::memcpy(&bits, from + i * sizeof(bits), sizeof(bits));
    to[i] = Type::widen(bits);
  }
}

template <class Type>
void store_all(std::span<const float> values, void* data, std::int64_t first) {
  auto* to = static_cast<std::byte*>(data) + first * std::int64_t{sizeof(typename Type::Bits)};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const typename Type::Bits bits = Type::round(values[i]);
    std::memcpy(to + i * sizeof(bits), &bits, sizeof(bits));
  }
}

struct Element {
  ElementFormat format;
  void (*load)(const void*, std::int64_t, std::span<float>);
  void (*store)(std::span<const float>, void*, std::int64_t);
};

/// Indexed by DType.
constexpr std::array<Element, 3> kElements = {{
    {{24, 0x1p-24, 0x1.fffffep127, 0x1p-149}, load_all<F32>, store_all<F32>},
    {{11, 0x1p-11, 65504.0, 0x1p-24}, load_all<F16>, store_all<F16>},
    {{8, 0x1p-8, 0x1.fep127, 0x1p-133}, load_all<Bf16>, store_all<Bf16>},
}};
static_assert(static_cast<int>(DType::f32) == 0 && static_cast<int>(DType::f16) == 1 &&
              static_cast<int>(DType::bf16) == 2);

const Element& element(DType type) { return kElements.at(static_cast<std::size_t>(type)); }

}  // namespace

const ElementFormat& element_format(DType type) { return element(type).format; }

float to_float(DType type, const void* data, std::int64_t i) {
  float value = 0;
  element(type).load(data, i, {&value, 1});
  return value;
}

void to_float(DType type, const void* data, std::int64_t first, std::span<float> to) {
  element(type).load(data, first, to);
}

void store(DType type, float value, void* data, std::int64_t i) { element(type).store({&value, 1}, data, i); }

void store(DType type, std::span<const float> values, void* data, std::int64_t first) {
  element(type).store(values, data, first);
}

float rounded_to_tf32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  constexpr std::uint32_t kExponent = 0x7f800000;
  return (bits & kExponent) == kExponent ? value : std::bit_cast<float>((bits + 0x1000) & ~0x1fffu);
}

}  // namespace sparsekiln
