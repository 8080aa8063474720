#include "emulator/isa/conversion_narrow.h"

#include "emulator/isa/lanes.h"
#include "emulator/isa/narrow_elements.h"

namespace sparsekiln::emulator {
namespace {

using ptx::Type;

/// .relu: negative numbers and -0 become +0; NaN stays.
template <bool Relu>
float clipped(float value) {
  return Relu && (number::bits_of(value) & number::kSign32) != 0 && value == value ? 0.0f : value;
}

template <class Format, bool Relu>
std::uint16_t pair_of(float upper, float lower) {
  return static_cast<std::uint16_t>(number::narrow(Format{}, clipped<Relu>(upper)) << 8 |
                                    number::narrow(Format{}, clipped<Relu>(lower)));
}

template <class Format, bool Relu>
std::uint16_t from_f32(float upper, float lower) {
  return pair_of<Format, Relu>(upper, lower);
}

template <class Format, bool Relu>
std::uint16_t from_f16x2(std::uint32_t pair) {
  return pair_of<Format, Relu>(number::widen(number::F16{}, static_cast<std::uint16_t>(pair >> 16)),
                               number::widen(number::F16{}, static_cast<std::uint16_t>(pair)));
}

template <class Format, bool Relu>
std::uint32_t to_f16(std::uint32_t bits) {
  const float value = clipped<Relu>(number::widen(Format{}, static_cast<std::uint8_t>(bits)));
  return number::narrow<number::Rounding::nearest_even>(number::F16{}, value);  // exact
}

template <class Format, bool Relu>
std::uint32_t to_f16x2(std::uint16_t pair) {
  return to_f16<Format, Relu>(pair >> 8u) << 16 | to_f16<Format, Relu>(pair);
}

template <class Format, bool Relu>
Handler of_format(Type from, Type to) {
  if (to == Type::f16x2) return lanes::map<to_f16x2<Format, Relu>>;
  return from == Type::f32 ? lanes::map<from_f32<Format, Relu>> : lanes::map<from_f16x2<Format, Relu>>;
}

template <class Format>
Handler of_relu(const Conversion& conversion) {
  return conversion.relu ? of_format<Format, true>(conversion.from, conversion.to)
                         : of_format<Format, false>(conversion.from, conversion.to);
}

}  // namespace

Handler narrow_pair_handler(const Conversion& conversion) {
  const bool e4m3 = conversion.to == Type::e4m3x2 || conversion.from == Type::e4m3x2;
  return e4m3 ? of_relu<number::E4m3>(conversion) : of_relu<number::E5m2>(conversion);
}

}  // namespace sparsekiln::emulator
