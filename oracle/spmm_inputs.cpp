#include "oracle/spmm_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <sparsekiln/error.h>

#include "compiler/edge_runs.h"
#include "compiler/element.h"
#include "oracle/check_result.h"

namespace sparsekiln {
std::int64_t packed_stride(const Computation& what, DType dtype, std::int64_t length) {
  const std::int64_t unit =
      std::max<std::int64_t>(1, what.alignment / static_cast<std::int64_t>(size_of(dtype)));
  return (length + unit - 1) / unit * unit;
}

std::int64_t strided_elements(std::int64_t rows, std::int64_t length, std::int64_t stride) {
  return rows == 0 ? 0 : (rows - 1) * stride + length;
}

namespace {

/// The largest integer of x and W. With an epilogue there is room for what it adds, and for halves: see
/// make_inputs.
std::int64_t largest_integer(const Spmm& problem) {
  const std::int64_t k = std::int64_t{problem.layout.statistics().longest_row} * problem.block.in;
  const double growth = problem.epilogue == Epilogue{} ? 1 : problem.epilogue.row_scale ? 64 : 16;
  return largest_integer(static_cast<double>(k), growth, problem.result_dtype);
}

/// The streams of one seed.
enum Stream : std::uint64_t {
  kX,
  kW,
  kV,
  kBias,
  kVBias,
  kResidual,
  kY,
  kZ,
  kGates,
  kEdgeGain,
  kEdgeBias,
  kCell,
  kNormalisation,
  kRowScale,
  kVRowScale
};

/// Fills operands of one kind from one seed.
class Filler {
 public:
  Filler(const Spmm& problem, Inputs kind, std::uint64_t seed)
      : problem_(problem),
        kind_(kind),
        seed_(seed),
        largest_(kind == Inputs::small_integers ? largest_integer(problem) : 0) {}

  [[nodiscard]] HostActivation activation(Stream stream, DType dtype, std::int64_t n, std::int64_t features,
                                          std::int64_t image, std::int64_t stride = 0) const {
    HostActivation made{dtype, problem_.order, n, features, stride, {}, image};
    const std::int64_t length = made.row_length();
    if (stride == 0) made.stride = packed_stride(problem_, dtype, length);
    if (made.stride < length)
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("x with rows of {} elements was asked for at a stride of {}; it must be {} or more",
                      length, stride, length));
    made.bytes.resize(static_cast<std::size_t>(strided_elements(made.rows(), length, made.stride)) *
                      size_of(dtype));
    const std::vector<float> gap(static_cast<std::size_t>(made.stride - length),
                                 std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t row = 0; row < made.rows(); ++row) {
      fill_from(stream, dtype, made.bytes.data(), row * made.stride, length, row * length);
      if (row + 1 < made.rows()) store(dtype, gap, made.bytes.data(), row * made.stride + length);
    }
    return made;
  }
  [[nodiscard]] std::vector<std::byte> dense(Stream stream, DType dtype, std::int64_t elements) const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(elements) * size_of(dtype));
    fill_from(stream, dtype, bytes.data(), 0, elements, 0);
    return bytes;
  }
  /// The blocks of a weight; NaN beyond the last features, of which nothing may come.
  [[nodiscard]] std::vector<std::byte> weight(Stream stream) const {
    const BlockShape block = problem_.weight_block();
    const bool turned = problem_.by_columns();
    std::vector<std::byte> bytes =
        dense(stream, problem_.dtype, problem_.weight.blocks() * std::int64_t{block.out} * block.in);
    const std::int64_t of_sums =
        problem_.out_features() * problem_.weights() / (problem_.epilogue.glu ? 2 : 1);
    poison_beyond(problem_.weight, problem_.taps(), block, turned ? problem_.in_features() : of_sums,
                  turned ? of_sums : problem_.in_features(), problem_.dtype, bytes.data());
    return bytes;
  }
  /// A third of them 0, a third 1, the rest something between.
  [[nodiscard]] std::vector<std::byte> gates() const {
    return drawn(kGates, problem_.block_gates.count(), std::array{0.0f, 1.0f, 0.5f, 0.0f, 1.0f, 2.0f});
  }
  /// Few that are 0, none that is fixed by its situation or feature alone.
  [[nodiscard]] std::vector<std::byte> edge_gain(std::int64_t elements) const {
    return drawn(kEdgeGain, elements, std::array{1.0f, -1.0f, 2.0f, 0.5f, -2.0f, 0.0f, 1.0f});
  }
  /// The scales of neighbouring block rows differ; with them, integers stay halves.
  [[nodiscard]] std::vector<std::byte> row_scale(Stream stream, std::int64_t rows) const {
    std::vector<std::byte> scales = drawn(stream, rows, std::array{1.0f, 2.0f, 4.0f, -1.0f, -2.0f});
    for (std::int64_t row = 0; row < rows && kind_ == Inputs::random; ++row)
      store(DType::f32,
            to_double(DType::f32, scales.data(), row) * (0.3 + 0.1 * static_cast<double>(row % 5)),
            scales.data(), row);
    return scales;
  }

 private:
  /// Numbers of the type of sums, each one of some values.
  template <std::size_t kCount>
  [[nodiscard]] std::vector<std::byte> drawn(Stream stream, std::int64_t count,
                                             const std::array<float, kCount>& values) const {
    std::vector<float> numbers(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = values[draw(draw(seed_, stream), i) % kCount];
    const DType type = problem_.sum_type();
    std::vector<std::byte> bytes(numbers.size() * size_of(type));
    store(type, numbers, bytes.data(), 0);
    return bytes;
  }
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

namespace {

/// Random numbers, whatever the others are: what a cell computes is never exact. `projected`: forward takes a
/// projection, and its gradient activations.
HostCell cell_inputs(const Spmm& problem, std::int64_t n, std::uint64_t seed, bool projected) {
  const Filler filler(problem, Inputs::random, draw(seed, kCell));
  std::uint64_t made = 0;
  const auto matrix = [&](DType dtype, std::int64_t gates) {
    return filler.activation(static_cast<Stream>(made++), dtype, n, gates * problem.normalised_features(), 0);
  };
  const DType state = problem.sum_type();
  HostCell cell;
  cell.c_before = matrix(state, 1);
  if (problem.operation == Operation::forward) {
    if (projected) cell.projection = matrix(problem.result_dtype, 4);
    return cell;
  }
  if (projected) cell.activations = matrix(problem.result_dtype, 4);
  cell.c = matrix(state, 1);
  cell.dc = matrix(state, 1);
  return cell;
}

/// Sums with means, deviations and rows of zeros that differ, in place of random ones.
void spread_rows(HostActivation& sums, std::int64_t groups) {
  constexpr std::array kScales{1.0, 4.0, 0.25};
  const std::int64_t features = sums.features / groups;
  for (std::int64_t row = 0; row < sums.n; ++row)
    for (std::int64_t i = 0; i < sums.features; ++i) {
      const std::int64_t which = row + i / features;
      const double drawn = to_double(sums.dtype, sums.bytes.data(), sums.at(row, i));
      const double value =
          (drawn + static_cast<double>(which % 2)) * kScales[static_cast<std::size_t>(which % 3)];
      store(sums.dtype, which % 5 == 3 ? 0 : value, sums.bytes.data(), sums.at(row, i));
    }
}

/// The mean and 1/σ of each group.
void measure(const HostActivation& sums, double epsilon, HostActivation& statistics) {
  const std::int64_t groups = statistics.features / 2;
  const std::int64_t features = sums.features / groups;
  for (std::int64_t row = 0; row < sums.n; ++row)
    for (std::int64_t group = 0; group < groups; ++group) {
      const auto z = [&](std::int64_t i) {
        return to_double(sums.dtype, sums.bytes.data(), sums.at(row, group * features + i));
      };
      double mean = 0;
      for (std::int64_t i = 0; i < features; ++i) mean += z(i) / static_cast<double>(features);
      double square = epsilon;
      for (std::int64_t i = 0; i < features; ++i)
        square += (z(i) - mean) * (z(i) - mean) / static_cast<double>(features);
      store(statistics.dtype, mean, statistics.bytes.data(), statistics.at(row, 2 * group));
      store(statistics.dtype, 1 / std::sqrt(square), statistics.bytes.data(),
            statistics.at(row, 2 * group + 1));
    }
}

std::uint64_t seed_of_normalisation(std::uint64_t seed) { return draw(seed, kNormalisation); }

/// Random numbers, too.
HostNormalisation normalisation_inputs(const Spmm& problem, std::int64_t n, std::uint64_t inputs_seed) {
  const std::uint64_t seed = seed_of_normalisation(inputs_seed);
  const Filler filler(problem, Inputs::random, seed);
  const Epilogue& ends = *problem.normalisation;
  const std::int64_t features = problem.normalised_features();
  const std::int64_t groups = problem.groups_of_sums();
  std::uint64_t made = 1;  // after dnorm
  const auto stream = [&] { return static_cast<Stream>(made++); };
  const auto matrix = [&](DType dtype, std::int64_t width) {
    const std::int64_t unit = packed_stride(problem, dtype, 1);
    const auto units = static_cast<std::int64_t>(draw(seed, 100 + made) % 3);
    return filler.activation(stream(), dtype, n, width, 0,
                             packed_stride(problem, dtype, width) + units * unit);
  };
  HostNormalisation inputs;
  // An epsilon that decides little, and one that decides much. Results are large where it is all of a
  // variance.
  const bool large = problem.result_dtype == DType::f16 || draw(seed, 200) % 2 == 0;
  inputs.epsilon = large ? 0.3 : 1e-5;
  inputs.gain = filler.dense(stream(), problem.result_dtype, groups * features);
  inputs.bias = filler.dense(stream(), problem.result_dtype, groups * features);
  if (ends.multiply) inputs.multiplier = matrix(problem.result_dtype, features);
  if (ends.add) inputs.addend = matrix(problem.result_dtype, features);
  if (problem.operation == Operation::forward) return inputs;
  inputs.sums = matrix(problem.result_dtype, groups * features);
  spread_rows(inputs.sums, groups);
  // Statistics need no alignment but that of their elements.
  inputs.statistics = filler.activation(stream(), problem.sum_type(), n, 2 * groups, 0,
                                        2 * groups + static_cast<std::int64_t>(draw(seed, 201) % 3));
  measure(inputs.sums, inputs.epsilon, inputs.statistics);
  return inputs;
}

/// One, a few, many, or more than batch rows.
std::int64_t drawn_parts(std::int64_t n, std::uint64_t seed) {
  const std::array<std::int64_t, 4> choices{1, 3, 16, n + 3};
  return choices[draw(seed_of_normalisation(seed), 202) % choices.size()];
}

}  // namespace

void take_parts(const Spmm& problem, HostInputs& inputs, std::int64_t parts) {
  const Filler filler(problem, Inputs::random, seed_of_normalisation(inputs.seed));
  const std::int64_t width = 2 * problem.groups_of_sums() * problem.normalised_features();
  inputs.normalisation.dnorm =
      filler.activation(static_cast<Stream>(0), problem.sum_type(), parts, width, 0, width);
}

HostInputs make_inputs(const Spmm& problem, std::int64_t n, Inputs kind, std::uint64_t seed,
                       std::int64_t x_stride) {
  const Filler filler(problem, kind, seed);
  const std::int64_t x_rows = problem.x_rows(n);
  const std::int64_t y_rows = problem.y_rows(n);
  HostActivation x =
      filler.activation(kX, problem.dtype, x_rows, problem.in_features(), problem.x_image(), x_stride);
  HostInputs inputs;
  inputs.kind = kind;
  inputs.seed = seed;
  inputs.n = n;
  inputs.x_stride = x.stride;
  inputs.x = std::move(x.bytes);
  inputs.w = filler.weight(kW);
  const Epilogue& ends = problem.epilogue;
  const std::int64_t out = problem.out_features();
  if (ends.glu) inputs.v = filler.weight(kV);
  if (ends.bias) inputs.bias = filler.dense(kBias, problem.result_dtype, out);
  if (ends.bias && ends.glu) inputs.v_bias = filler.dense(kVBias, problem.result_dtype, out);
  if (ends.residual)
    inputs.residual = filler.activation(kResidual, problem.result_dtype, y_rows, out, problem.y_image());
  if (ends.edge_bias) {
    const std::int64_t elements = out * count_edge_situations(problem);
    inputs.edge_gain = filler.edge_gain(elements);
    inputs.edge_bias = filler.dense(kEdgeBias, problem.sum_type(), elements);
  }
  if (ends.row_scale) inputs.row_scale = filler.row_scale(kRowScale, problem.out_blocks());
  if (ends.row_scale && ends.glu) inputs.v_row_scale = filler.row_scale(kVRowScale, problem.out_blocks());
  if (ends.scale) {
    // float64 problems are given numbers that no float is. Powers of two keep integers exact.
    const bool any = problem.sum_type() == DType::f64 && kind == Inputs::random;
    inputs.alpha = any ? 0.1 : 0.5;
    inputs.beta = any ? -1.7 : -2;
    inputs.y = filler.activation(kY, problem.result_dtype, y_rows, out, problem.y_image());
  }
  if (problem.derivative != Activation::none)
    inputs.z = filler.activation(kZ, problem.dtype, x_rows, problem.in_features(), problem.x_image());
  if (problem.gates) inputs.gates = filler.gates();
  if (ends.lstm) inputs.cell = cell_inputs(problem, n, seed, true);
  if (problem.normalisation) {
    inputs.normalisation = normalisation_inputs(problem, n, seed);
    if (problem.normalisation->lstm) inputs.cell = cell_inputs(problem, n, seed, false);
    if (problem.operation == Operation::grad_input) take_parts(problem, inputs, drawn_parts(n, seed));
  }
  return inputs;
}

void plant_non_finite(const Spmm& problem, HostInputs& inputs, std::uint64_t seed) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr std::array kPlants = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), kInf};
  const std::int64_t rows = problem.x_rows(inputs.n);
  if (rows == 0 || problem.in_features() == 0) return;
  const HostActivation place{
      problem.dtype, problem.order, rows, problem.in_features(), inputs.x_stride, {}, problem.x_image()};
  for (std::size_t i = 0; i < kPlants.size(); ++i) {
    const auto row = static_cast<std::int64_t>(draw(seed, 2 * i) % static_cast<std::uint64_t>(rows));
    const auto k =
        static_cast<std::int64_t>(draw(seed, 2 * i + 1) % static_cast<std::uint64_t>(problem.in_features()));
    const bool infinite = std::isinf(rounded(kInf, problem.dtype));
    store(problem.dtype, infinite ? kPlants[i] : std::numeric_limits<float>::quiet_NaN(), inputs.x.data(),
          place.at(row, k));
  }
}

}  // namespace sparsekiln
