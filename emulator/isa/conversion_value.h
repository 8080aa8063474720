#pragma once

#include <cstdint>

#include "emulator/isa/number.h"
#include "emulator/ptx/module.h"

/// One value converted (PTX ISA 9.7.9.21), in every form that cvt has for a single source. It is slow: it
/// handles one lane at a time and decides everything at run time.
namespace sparsekiln::emulator {

/// The modifiers of a cvt, in as many bits as Instruction::detail has.
struct Conversion {
  ptx::Type to = ptx::Type::s32;  ///< u8 to s64, f16, bf16, f32, f64
  ptx::Type from = ptx::Type::s32;
  number::Rounding rounding = number::Rounding::nearest_even;  ///< to a float, or of `to_integral`
  bool to_integral = false;                                    ///< .rni .rzi .rmi .rpi
  bool ftz = false;                                            ///< of f32, on both sides
  bool sat = false;
  bool relu = false;
  bool satfinite = false;
};
static_assert(sizeof(Conversion) == sizeof(std::uint64_t));

/// The low bits of `bits` as `from`, converted; what is above the bits of `to` repeats the sign of a signed
/// integer and is zero otherwise (9.4.1).
[[nodiscard]] std::uint64_t convert(const Conversion& conversion, std::uint64_t bits);

/// Calls `use` with the rounding as a constant.
template <class Use>
[[nodiscard]] auto with_rounding(number::Rounding rounding, Use use) {
  switch (rounding) {
    case number::Rounding::to_zero:
      return use.template operator()<number::Rounding::to_zero>();
    case number::Rounding::down:
      return use.template operator()<number::Rounding::down>();
    case number::Rounding::up:
      return use.template operator()<number::Rounding::up>();
    case number::Rounding::to_odd:
      return use.template operator()<number::Rounding::to_odd>();
    default:
      return use.template operator()<number::Rounding::nearest_even>();
  }
}

}  // namespace sparsekiln::emulator
