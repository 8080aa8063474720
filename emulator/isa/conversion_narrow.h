#pragma once

#include "emulator/isa/conversion_value.h"
#include "emulator/program/program.h"

namespace sparsekiln::emulator {

/// Two f32, or an f16x2, to a pair of 8 bits (Conversion::to, e4m3x2 or e5m2x2), which saturates; or such a
/// pair to f16x2. Instruction::detail is not used.
[[nodiscard]] Handler narrow_pair_handler(const Conversion& conversion);

}  // namespace sparsekiln::emulator
