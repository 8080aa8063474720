#include "emulator/isa/conversion_float.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "emulator/isa/lanes.h"
#include "emulator/isa/number_rows.h"

namespace sparsekiln::emulator {
namespace {

using number::Rounding;
using ptx::Type;

/// As C++ does it: to nearest.
template <class To, class From>
To cast(From value) {
  return static_cast<To>(value);
}

// ---- f32 to integers; .ftz matters to .rmi and .rpi only, which go the slow way with it ----

template <Rounding R>
float to_integral(float value) {
  if constexpr (R == Rounding::to_zero) return std::trunc(value);
  if constexpr (R == Rounding::down) return std::floor(value);
  if constexpr (R == Rounding::up) return std::ceil(value);
  return std::nearbyint(value);
}

template <Rounding R>
std::int32_t to_s32(float value) {
  const float whole = to_integral<R>(value);
  const float above = whole > -0x1p31f ? whole : -0x1p31f;  // NaN as well
  const bool over = whole >= 0x1p31f;
  const std::int32_t inside = static_cast<std::int32_t>(over ? 0.0f : above);
  const std::int32_t clamped = over ? std::numeric_limits<std::int32_t>::max() : inside;
  return whole != whole ? 0 : clamped;
}

template <Rounding R>
std::uint32_t to_u32(float value) {
  const float whole = to_integral<R>(value);
  const float above = whole > 0.0f ? whole : 0.0f;
  return static_cast<std::uint32_t>(
      static_cast<std::int64_t>(above < 0x1p32f ? static_cast<double>(above) : 4294967295.0));
}

// ---- floating point; .ftz is for forms where no subnormal f32 can come out of it ----

constexpr std::uint64_t kSat = 1 << 0;
constexpr std::uint64_t kRelu = 1 << 1;
constexpr std::uint64_t kFinite = 1 << 2;

/// `row` clamped to the limits; in `kept` if that changes it.
const float* limited(const float* row, std::uint64_t limits, float greatest, float* kept) {
  if (limits == 0) return row;
  std::copy_n(row, kLanes, kept);
  if ((limits & kSat) != 0) number::saturate_row(kept, kLanes);
  if ((limits & kRelu) != 0) number::cut_negative_row(kept, kLanes);
  if ((limits & kFinite) != 0) number::limit_row(kept, greatest, kLanes);
  return kept;
}

constexpr float kGreatestTf32 = 0x1.ffcp127f;
constexpr float greatest(number::F16) { return 65504.0f; }
constexpr float greatest(number::Bf16) { return 0x1.fep127f; }

/// An operand in 16 bits.
template <Rounding R, class Format>
void narrow_operand(const Warp& warp, const Instruction& instruction, std::size_t index, std::uint16_t* to) {
  alignas(64) float kept[kLanes];
  const float* const row = lanes::operand<const float>(warp, instruction, index);
  number::narrow_row<R>(Format{}, limited(row, instruction.detail, greatest(Format{}), kept), to, kLanes);
}

template <Rounding R, class Format>
void f32_to_16(Warp& warp, const Instruction& instruction, Mask mask) {
  alignas(64) std::uint16_t result[kLanes];
  narrow_operand<R, Format>(warp, instruction, 1, result);
  lanes::blend(lanes::operand<std::uint16_t>(warp, instruction, 0), result, mask);
}

/// The first operand goes to the upper half.
template <Rounding R, class Format>
void f32_pair_to_16(Warp& warp, const Instruction& instruction, Mask mask) {
  alignas(64) std::uint16_t upper[kLanes];
  alignas(64) std::uint16_t lower[kLanes];
  narrow_operand<R, Format>(warp, instruction, 1, upper);
  narrow_operand<R, Format>(warp, instruction, 2, lower);
  const std::uint16_t* const high = upper;
  const std::uint16_t* const low = lower;
  lanes::produce(lanes::operand<std::uint32_t>(warp, instruction, 0), mask,
                 [=](int lane) { return std::uint32_t{high[lane]} << 16 | low[lane]; });
}

template <Rounding R>
void f32_to_tf32(Warp& warp, const Instruction& instruction, Mask mask) {
  alignas(64) float kept[kLanes];
  const float* const from =
      limited(lanes::operand<const float>(warp, instruction, 1), instruction.detail, kGreatestTf32, kept);
  lanes::produce(lanes::operand<std::uint32_t>(warp, instruction, 0), mask,
                 [=](int lane) { return number::narrow_tf32<R>(from[lane]); });
}

template <class Format>
float f32_from_16(std::uint16_t value) {
  return number::canonical(number::widen(Format{}, value));
}
float f64_to_f32(double value) { return number::canonical(static_cast<float>(value)); }

template <class Format>
Handler narrowing_handler(Rounding rounding) {
  if (rounding == Rounding::nearest_even) return f32_to_16<Rounding::nearest_even, Format>;
  return rounding == Rounding::to_zero ? f32_to_16<Rounding::to_zero, Format> : nullptr;
}

template <class To>
Handler from_integer_handler(Type from) {
  switch (from) {
    case Type::u32:
      return lanes::map<cast<To, std::uint32_t>>;
    case Type::s32:
      return lanes::map<cast<To, std::int32_t>>;
    case Type::u64:
      return lanes::map<cast<To, std::uint64_t>>;
    case Type::s64:
      return lanes::map<cast<To, std::int64_t>>;
    default:
      return nullptr;
  }
}

}  // namespace

std::uint64_t limits_of(const Conversion& conversion) {
  return (conversion.sat ? kSat : 0) | (conversion.relu ? kRelu : 0) | (conversion.satfinite ? kFinite : 0);
}

Handler fast_float_handler(const Conversion& c) {
  const bool nearest = c.rounding == Rounding::nearest_even;
  if (c.from == Type::f32 && (c.to == Type::s32 || c.to == Type::u32)) {
    const bool flush_matters = c.ftz && (c.rounding == Rounding::down || c.rounding == Rounding::up);
    if (flush_matters) return nullptr;
    return with_rounding(c.rounding, [&]<Rounding R>() -> Handler {
      return c.to == Type::s32 ? lanes::map<to_s32<R>> : lanes::map<to_u32<R>>;
    });
  }
  if (!ptx::is_float(c.from) && nearest && !c.sat) {
    if (c.to == Type::f32) return from_integer_handler<float>(c.from);  // never subnormal
    return c.to == Type::f64 ? from_integer_handler<double>(c.from) : nullptr;
  }
  if (c.from == Type::f32 && c.to == Type::f16 && (!c.ftz || nearest))
    return narrowing_handler<number::F16>(c.rounding);
  if (c.from == Type::f32 && c.to == Type::bf16 && !c.ftz) return narrowing_handler<number::Bf16>(c.rounding);
  if (c.sat || c.to_integral) return nullptr;
  if (c.from == Type::f16 && c.to == Type::f32)
    return lanes::map<f32_from_16<number::F16>>;  // never subnormal
  if (c.ftz) return nullptr;
  if (c.from == Type::bf16 && c.to == Type::f32) return lanes::map<f32_from_16<number::Bf16>>;
  if (c.from == Type::f32 && c.to == Type::f64) return lanes::map<cast<double, float>>;
  if (c.from == Type::f64 && c.to == Type::f32 && nearest) return lanes::map<f64_to_f32>;
  return nullptr;
}

Handler pair_handler(const Conversion& conversion) {
  const bool to_zero = conversion.rounding == Rounding::to_zero;
  if (conversion.to == Type::f16x2)
    return to_zero ? f32_pair_to_16<Rounding::to_zero, number::F16>
                   : f32_pair_to_16<Rounding::nearest_even, number::F16>;
  return to_zero ? f32_pair_to_16<Rounding::to_zero, number::Bf16>
                 : f32_pair_to_16<Rounding::nearest_even, number::Bf16>;
}

Handler tf32_handler(Rounding rounding) {
  if (rounding == Rounding::nearest_away) return f32_to_tf32<Rounding::nearest_away>;
  return rounding == Rounding::to_zero ? f32_to_tf32<Rounding::to_zero> : f32_to_tf32<Rounding::nearest_even>;
}

}  // namespace sparsekiln::emulator
