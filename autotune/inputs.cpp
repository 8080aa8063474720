#include "autotune/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <sparsekiln/error.h>

#include "compiler/element.h"

namespace sparsekiln {
namespace {

/// Draw i of the stream `seed`: the SplitMix64 generator (Steele, Lea & Flood 2014), addressed by position.
std::uint64_t draw(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// The largest r for which sums of the longest row's products of integers in [-r, r] are exact in float32
/// (2^24) and finite in the output type. Where the output type is narrow, r is kept so small that most sums
/// are exact in it too: rounding would hide a small error.
std::int64_t largest_integer(const Spmm& problem) {
  const auto k =
      static_cast<double>(std::int64_t{problem.layout.statistics().longest_row} * problem.block.in);
  const ElementFormat& out = element_format(problem.out_dtype);
  const double most = std::min(0x1p24, out.largest);
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

float small_integer(std::uint64_t bits, std::int64_t r) {
  const auto magnitude = static_cast<float>(1 + (((bits >> 32) * static_cast<std::uint64_t>(r)) >> 32));
  return magnitude * static_cast<float>(1 - static_cast<int>(2 * (bits & 1)));  // no branch to mispredict
}

float uniform(std::uint64_t bits) {
  return static_cast<float>(static_cast<std::int32_t>(bits >> 32)) * 0x1p-31f;
}

/// Writes `count` elements of stream `seed` from position `position` on to `to`, from element `first` on.
void fill(DType type, void* to, std::int64_t first, std::int64_t count, Inputs kind, std::int64_t r,
          std::uint64_t seed, std::int64_t position) {
  std::array<float, 1024> values;
  for (std::int64_t done = 0; done < count;) {
    const auto now = static_cast<std::size_t>(std::min<std::int64_t>(values.size(), count - done));
    const auto base = static_cast<std::uint64_t>(position + done);
    if (kind == Inputs::random)
      for (std::size_t i = 0; i < now; ++i) values[i] = uniform(draw(seed, base + i));
    else
      for (std::size_t i = 0; i < now; ++i) values[i] = small_integer(draw(seed, base + i), r);
    store(type, std::span(values).first(now), to, first + done);
    done += static_cast<std::int64_t>(now);
  }
}

}  // namespace

HostInputs make_inputs(const Spmm& problem, std::int64_t n, Inputs kind, std::uint64_t seed,
                       std::int64_t x_stride) {
  const std::int64_t in = problem.in_features();
  if (x_stride == 0) x_stride = in;
  if (x_stride < in)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("x with rows of {} elements was asked for at a stride of {}; it must be {} or more", in,
                    x_stride, in));
  const std::int64_t r = kind == Inputs::small_integers ? largest_integer(problem) : 0;
  const auto bytes = static_cast<std::int64_t>(size_of(problem.dtype));
  const std::int64_t weights = problem.layout.blocks() * problem.block.out * problem.block.in;

  HostInputs inputs{kind, n, x_stride, {}, {}};
  inputs.x.resize(static_cast<std::size_t>(n * x_stride * bytes));
  inputs.w.resize(static_cast<std::size_t>(weights * bytes));
  const std::uint64_t x_seed = draw(seed, 0);
  const std::uint64_t w_seed = draw(seed, 1);
  const std::vector<float> gap(static_cast<std::size_t>(x_stride - in),
                               std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t row = 0; row < n; ++row) {
    fill(problem.dtype, inputs.x.data(), row * x_stride, in, kind, r, x_seed, row * in);
    store(problem.dtype, gap, inputs.x.data(), row * x_stride + in);
  }
  fill(problem.dtype, inputs.w.data(), 0, weights, kind, r, w_seed, 0);
  return inputs;
}

void plant_non_finite(const Spmm& problem, HostInputs& inputs, std::uint64_t seed) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr std::array kPlants = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), kInf};
  if (inputs.n == 0 || problem.in_features() == 0) return;
  for (std::size_t i = 0; i < kPlants.size(); ++i) {
    const auto row = static_cast<std::int64_t>(draw(seed, 2 * i) % static_cast<std::uint64_t>(inputs.n));
    const auto k =
        static_cast<std::int64_t>(draw(seed, 2 * i + 1) % static_cast<std::uint64_t>(problem.in_features()));
    store(problem.dtype, kPlants[i], inputs.x.data(), row * inputs.x_stride + k);
  }
}

}  // namespace sparsekiln
