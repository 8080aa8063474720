#pragma once

#include <cstdint>

#include "emulator/isa/number.h"

/// Conversions of number.h over many elements. A loop for each step, rather than one for all: GCC makes
/// vectors of loops this short, and of longer ones only by luck. `count` is a multiple of 16; rows do not
/// overlap.
namespace sparsekiln::emulator::number {

void widen_row(F16 format, const std::uint16_t* from, float* to, int count);
void widen_row(Bf16 format, const std::uint16_t* from, float* to, int count);

/// R: nearest_even or to_zero.
template <Rounding R>
void narrow_row(F16 format, const float* from, std::uint16_t* to, int count);
template <Rounding R>
void narrow_row(Bf16 format, const float* from, std::uint16_t* to, int count);

/// .sat of each element.
void saturate_row(float* row, int count);
/// .relu: negative numbers become +0.
void cut_negative_row(float* row, int count);
/// Magnitudes above `greatest` become it; not those of NaNs. For .satfinite.
void limit_row(float* row, float greatest, int count);

/// .ftz of f16 and bf16 (`Format`).
template <class Format>
void flush_row(const std::uint16_t* from, std::uint16_t* to, int count);

}  // namespace sparsekiln::emulator::number
