#include "autotune/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

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
  // Room for what an epilogue adds, and halves: see make_inputs.
  const double most = std::min(problem.epilogue == Epilogue{} ? 0x1p24 : 0x1p20, out.largest);
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

std::int64_t packed_stride(const Computation& what, DType dtype, std::int64_t length) {
  const std::int64_t unit =
      std::max<std::int64_t>(1, what.alignment / static_cast<std::int64_t>(size_of(dtype)));
  return (length + unit - 1) / unit * unit;
}

namespace {

/// The streams of one seed.
enum Stream : std::uint64_t { kX, kW, kV, kBias, kVBias, kResidual, kY, kZ, kGates };

/// Fills operands of one kind from one seed.
class Filler {
 public:
  Filler(const Spmm& problem, Inputs kind, std::uint64_t seed)
      : problem_(problem),
        kind_(kind),
        seed_(seed),
        largest_(kind == Inputs::small_integers ? largest_integer(problem) : 0) {}

  [[nodiscard]] HostActivation activation(Stream stream, DType dtype, std::int64_t n, std::int64_t features,
                                          std::int64_t stride = 0) const {
    HostActivation made{dtype, problem_.order, n, features, stride, {}};
    const std::int64_t length = made.row_length();
    if (stride == 0) made.stride = packed_stride(problem_, dtype, length);
    if (made.stride < length)
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("x with rows of {} elements was asked for at a stride of {}; it must be {} or more",
                      length, stride, length));
    made.bytes.resize(static_cast<std::size_t>(made.rows() * made.stride) * size_of(dtype));
    const std::vector<float> gap(static_cast<std::size_t>(made.stride - length),
                                 std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t row = 0; row < made.rows(); ++row) {
      fill_from(stream, dtype, made.bytes.data(), row * made.stride, length, row * length);
      store(dtype, gap, made.bytes.data(), row * made.stride + length);
    }
    return made;
  }
  [[nodiscard]] std::vector<std::byte> dense(Stream stream, DType dtype, std::int64_t elements) const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(elements) * size_of(dtype));
    fill_from(stream, dtype, bytes.data(), 0, elements, 0);
    return bytes;
  }
  /// A third of them 0, a third 1, the rest something between.
  [[nodiscard]] std::vector<std::byte> gates() const {
    const auto blocks = static_cast<std::size_t>(problem_.layout.blocks());
    std::vector<float> values(blocks);
    constexpr std::array kValues{0.0f, 1.0f, 0.5f, 0.0f, 1.0f, 2.0f};
    for (std::size_t i = 0; i < blocks; ++i)
      values[i] = kValues[draw(draw(seed_, kGates), i) % kValues.size()];
    std::vector<std::byte> bytes(blocks * sizeof(float));
    store(DType::f32, values, bytes.data(), 0);
    return bytes;
  }

 private:
  void fill_from(Stream stream, DType dtype, void* to, std::int64_t first, std::int64_t count,
                 std::int64_t position) const {
    fill(dtype, to, first, count, kind_, largest_, draw(seed_, stream), position);
  }

  const Spmm& problem_;
  Inputs kind_;
  std::uint64_t seed_;
  std::int64_t largest_;
};

}  // namespace

HostInputs make_inputs(const Spmm& problem, std::int64_t n, Inputs kind, std::uint64_t seed,
                       std::int64_t x_stride) {
  const Filler filler(problem, kind, seed);
  const std::int64_t weights = problem.layout.blocks() * problem.block.out * problem.block.in;
  HostActivation x = filler.activation(kX, problem.dtype, n, problem.in_features(), x_stride);
  HostInputs inputs;
  inputs.kind = kind;
  inputs.n = n;
  inputs.x_stride = x.stride;
  inputs.x = std::move(x.bytes);
  inputs.w = filler.dense(kW, problem.dtype, weights);
  const Epilogue& ends = problem.epilogue;
  const std::int64_t out = problem.out_features();
  if (ends.gated) inputs.v = filler.dense(kV, problem.dtype, weights);
  if (ends.bias) inputs.bias = filler.dense(kBias, problem.out_dtype, out);
  if (ends.bias && ends.gated) inputs.v_bias = filler.dense(kVBias, problem.out_dtype, out);
  if (ends.residual) inputs.residual = filler.activation(kResidual, problem.out_dtype, n, out);
  if (ends.scale) {
    inputs.alpha = 0.5;
    inputs.beta = -2;
    inputs.y = filler.activation(kY, problem.out_dtype, n, out);
  }
  if (problem.derivative != Activation::none)
    inputs.z = filler.activation(kZ, problem.dtype, n, problem.in_features());
  if (problem.gates) inputs.gates = filler.gates();
  return inputs;
}

void plant_non_finite(const Spmm& problem, HostInputs& inputs, std::uint64_t seed) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr std::array kPlants = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), kInf};
  if (inputs.n == 0 || problem.in_features() == 0) return;
  const HostActivation place{problem.dtype,         problem.order,   inputs.n,
                             problem.in_features(), inputs.x_stride, {}};
  for (std::size_t i = 0; i < kPlants.size(); ++i) {
    const auto row = static_cast<std::int64_t>(draw(seed, 2 * i) % static_cast<std::uint64_t>(inputs.n));
    const auto k =
        static_cast<std::int64_t>(draw(seed, 2 * i + 1) % static_cast<std::uint64_t>(problem.in_features()));
    store(problem.dtype, kPlants[i], inputs.x.data(), place.at(row, k));
  }
}

}  // namespace sparsekiln
