#pragma once

#include <cstdint>
#include <span>

#include <sparsekiln/problem.h>

namespace sparsekiln {

/// The arithmetic of one element type.
struct ElementFormat {
  std::int32_t significand_bits;  ///< the hidden one included: integers up to 2^significand_bits are exact
  double unit_roundoff;           ///< 2^-significand_bits: the largest relative error of one rounding
  double largest;                 ///< the largest finite value
  double least;                   ///< the distance of the smallest values
};
[[nodiscard]] const ElementFormat& element_format(DType type);

/// Element i of an array of `type`, exactly.
[[nodiscard]] float to_float(DType type, const void* data, std::int64_t i);
/// Elements first, first + 1 … of an array of `type`, exactly.
void to_float(DType type, const void* data, std::int64_t first, std::span<float> to);

/// Writes element i, rounded once to nearest, ties to even. A NaN stays a NaN.
void store(DType type, float value, void* data, std::int64_t i);
/// Writes elements first, first + 1 …
void store(DType type, std::span<const float> values, void* data, std::int64_t first);

/// To the nearest tf32, of 10 bits of fraction; ties away from zero (PTX ISA, cvt.rna.tf32.f32).
[[nodiscard]] float rounded_to_tf32(float value);

}  // namespace sparsekiln
