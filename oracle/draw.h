#pragma once

#include <cstdint>

#include <sparsekiln/problem.h>

namespace sparsekiln {

/// What operands are filled with, which decides how sharp a check can be.
enum class Inputs : std::uint8_t {
  small_integers,  ///< non-zero; every product and every partial sum, in any order, is exact in float32
  /// Uniform in [-1, 1), rounded to the type; of integers in all their range. No float32 is halfway between
  /// two numbers of tf32, which `mma` rounds away from zero, and the copy engine to even.
  random,
};

/// Draw i of the stream `seed`: the SplitMix64 generator (Steele, Lea & Flood 2014), addressed by position.
[[nodiscard]] std::uint64_t draw(std::uint64_t seed, std::uint64_t i);

/// Writes `count` elements of stream `seed` from position `position` on to `to`, from element `first` on:
/// integers other than 0 in [-largest, largest], or random numbers.
void fill(DType type, void* to, std::int64_t first, std::int64_t count, Inputs kind, std::int64_t largest,
          std::uint64_t seed, std::int64_t position);

/// Makes NaN of what the blocks of a weight hold beyond the last of `rows` × `cols` features, of which
/// nothing may come. A column of the layout is of a block of features and one of `taps` taps.
void poison_beyond(const Layout& layout, std::int32_t taps, BlockShape block, std::int64_t rows,
                   std::int64_t cols, DType type, void* weight);

/// The largest r up to 8 for which sums of k products of integers in [-r, r] are exact in float32 (2^24),
/// even `growth` times as large, and finite in the output type. Where the output type is narrow, r is kept so
/// small that most sums are exact in it too: rounding would hide a small error. Throws `invalid_argument`
/// where not even 1 will do.
[[nodiscard]] std::int64_t largest_integer(double k, double growth, DType out_dtype);

}  // namespace sparsekiln
