#include "oracle/draw.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/element.h"

namespace sparsekiln {
namespace {

double small_integer(std::uint64_t bits, std::int64_t r) {
  const auto magnitude = static_cast<double>(1 + (((bits >> 32) * static_cast<std::uint64_t>(r)) >> 32));
  return magnitude * static_cast<double>(1 - static_cast<int>(2 * (bits & 1)));  // no branch to mispredict
}

double uniform(std::uint64_t bits, bool all_of_float64) {
  if (all_of_float64) return static_cast<double>(static_cast<std::int64_t>(bits) >> 11) * 0x1p-52;
  const float value = static_cast<float>(static_cast<std::int32_t>(bits >> 32)) * 0x1p-31f;
  const auto word = std::bit_cast<std::uint32_t>(value);
  constexpr std::uint32_t kBelowTf32 = 0x1fff;
  const bool halfway = (word & kBelowTf32) == 0x1000;
  return halfway ? std::bit_cast<float>(word + 1) : value;
}

}  // namespace

std::uint64_t draw(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void fill(DType type, void* to, std::int64_t first, std::int64_t count, Inputs kind, std::int64_t largest,
          std::uint64_t seed, std::int64_t position) {
  std::array<double, 1024> values;
  const bool all_of_float64 = sum_type(type) == DType::f64;
  const double range = element(type).integer ? element_format(type).largest + 1 : 1;
  for (std::int64_t done = 0; done < count;) {
    const auto now = static_cast<std::size_t>(std::min<std::int64_t>(values.size(), count - done));
    const auto base = static_cast<std::uint64_t>(position + done);
    if (kind == Inputs::random)
      for (std::size_t i = 0; i < now; ++i) values[i] = range * uniform(draw(seed, base + i), all_of_float64);
    else
      for (std::size_t i = 0; i < now; ++i) values[i] = small_integer(draw(seed, base + i), largest);
    store(type, std::span<const double>(values).first(now), to, first + done);
    done += static_cast<std::int64_t>(now);
  }
}

void poison_beyond(const Layout& layout, std::int32_t taps, BlockShape block, std::int64_t rows,
                   std::int64_t cols, DType type, void* weight) {
  if (rows == std::int64_t{layout.rows()} * block.out &&
      cols == std::int64_t{layout.cols() / taps} * block.in)
    return;
  const std::int64_t elements = std::int64_t{block.out} * block.in;
  std::int64_t first = 0;  // of a block
  for (std::int32_t row = 0; row < layout.rows(); ++row)
    for (const std::int32_t col : layout.row(row)) {
      for (std::int64_t i = 0; i < elements; ++i)
        if (std::int64_t{row} * block.out + i / block.in >= rows ||
            std::int64_t{col / taps} * block.in + i % block.in >= cols)
          store(type, std::numeric_limits<float>::quiet_NaN(), weight, first + i);
      first += elements;
    }
}

std::int64_t largest_integer(double k, double growth, DType out_dtype) {
  const ElementFormat& out = element_format(out_dtype);
  const double most = std::min(0x1p24 / growth, out.largest);
  if (k > most)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("exact integer inputs were asked for, but rows of {} products may exceed {}, up to which "
                    "sums are exact; random inputs work",
                    k, most));
  const double visible = std::ldexp(0.5, out.significand_bits);
  std::int64_t r = 8;
  const auto fits = [&](auto value) {
    return k * value * value <= most && std::sqrt(k) * value * value <= visible;
  };
  while (r > 1 && !fits(static_cast<double>(r))) --r;
  return r;
}

}  // namespace sparsekiln
