#pragma once

#include <cstdint>

#include "emulator/isa/conversion_value.h"
#include "emulator/program/program.h"

/// Separate handlers for the floating-point conversions that kernels use often: they process whole rows at
/// once. All are for rows as wide as their types, and have `limits_of` their conversion in
/// Instruction::detail.
namespace sparsekiln::emulator {

[[nodiscard]] std::uint64_t limits_of(const Conversion& conversion);

/// Conversions with one source: operands are the result and the source. Null: there is none for this form.
[[nodiscard]] Handler fast_float_handler(const Conversion& conversion);

/// Two f32 to a pair, the first to the upper half; `conversion.to` is f16x2 or bf16x2, the rounding to
/// nearest or zero.
[[nodiscard]] Handler pair_handler(const Conversion& conversion);

/// f32 to tf32; the rounding is to nearest even, to nearest away from zero, or to zero.
[[nodiscard]] Handler tf32_handler(number::Rounding rounding);

}  // namespace sparsekiln::emulator
