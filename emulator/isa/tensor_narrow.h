#pragma once

#include "emulator/program/program.h"
#include "emulator/ptx/module.h"

namespace sparsekiln::emulator {

/// mma.m16n8k16 and .m16n8k32 of e4m3 and e5m2, with sums in f32 or f16 (PTX ISA 9.7.14.5). Operands: D, A,
/// B, C. The sums are those of isa/tensor.cpp.
[[nodiscard]] Handler narrow_mma(int k, bool half_sums, ptx::Type a, ptx::Type b);

}  // namespace sparsekiln::emulator
