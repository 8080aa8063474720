#pragma once

#include <cstdint>

/// Floating point of 8 bits (PTX ISA 5.2.3, "Alternate Floating-Point Data Formats").
namespace sparsekiln::emulator::number {

/// 4 bits of exponent, bias 7, 3 of fraction. No infinities; NaN is 0x7f.
struct E4m3 {};
/// The upper half of an f16.
struct E5m2 {};

/// Each number is an f32. `count` is a multiple of 16; rows do not overlap.
void widen_row(E4m3 format, const std::uint8_t* from, float* to, int count);
void widen_row(E5m2 format, const std::uint8_t* from, float* to, int count);

}  // namespace sparsekiln::emulator::number
