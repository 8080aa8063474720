#pragma once

#include "emulator/program/program.h"

namespace sparsekiln::emulator {

/// mma.sync.m16n8k16 and .m16n8k32 of bytes with sums of 32 bits (PTX ISA 9.7.14.5), exact. Operands: 4
/// registers of D, k / 8 of A, k / 16 of B, 4 of C. Instruction::detail 1 is .satfinite; without it sums wrap
/// around.
[[nodiscard]] Handler integer_mma(int k, bool a_signed, bool b_signed);

}  // namespace sparsekiln::emulator
