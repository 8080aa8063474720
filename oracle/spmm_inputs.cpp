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

OperandContract contract_of(const Spmm& problem) {
  OperandContract launch;
  static_cast<Computation&>(launch) = problem;
  launch.block = problem.weight_block();
  launch.out_dtype = problem.result_dtype;
  if (problem.normalisation) launch.epilogue = *problem.normalisation;
  const bool forward = is_forward(launch);
  launch.in_features = forward ? problem.in_features() : problem.out_features();
  launch.out_features = forward ? problem.out_features() : problem.in_features() / launch.gates_of_cell();
  launch.blocks = problem.weight.blocks();
  launch.edge_situations = count_edge_situations(launch);
  return launch;
}

HostActivation activation_of(const Spmm& problem, const OperandContract& launch, const OperandRow& row,
                             std::int64_t n, std::int64_t gap) {
  const bool like_x = row.features == Features::inputs || row.features == Features::gradients;
  HostActivation made{.dtype = type_of(row.type, launch),
                      .order = problem.order,
                      .n = like_x ? problem.x_rows(n) : problem.y_rows(n),
                      .features = count(row.features, launch),
                      .image = like_x ? problem.x_image() : problem.y_image()};
  const std::int64_t length = made.row_length();
  const bool aligned = row.features != Features::statistics;
  const std::int64_t unit = aligned ? packed_stride(problem, made.dtype, 1) : 1;
  made.stride = (aligned ? packed_stride(problem, made.dtype, length) : length) + gap * unit;
  return made;
}

const HostActivation& HostInputs::of(std::string_view name) const {
  static const HostActivation none;
  const auto found = read.find(name);
  if (found == read.end()) static_cast<void>(operand_row(name));  // which there must be
  return found == read.end() ? none : found->second;
}

HostActivation& HostInputs::at(std::string_view name) {
  const auto found = read.find(name);
  if (found == read.end())
    throw Error(ErrorKind::internal, fmt::format("there are no inputs of an operand {}", name));
  return found->second;
}

namespace {

bool is_scale(const OperandRow& row) { return row.form == OperandForm::dense && row.per == Per::block_row; }

/// The largest integer of x and W. With an epilogue there is room for what it adds, for halves, and for
/// scales of rows: see make_inputs.
std::int64_t largest_integer(const Spmm& problem) {
  const std::int64_t k = std::int64_t{problem.layout.statistics().longest_row} * problem.block.in;
  const bool scales = std::ranges::any_of(
      operand_rows(), [&](const OperandRow& row) { return is_scale(row) && row.taken(problem); });
  const double growth = problem.epilogue == Epilogue{} ? 1 : scales ? 64 : 16;
  return largest_integer(static_cast<double>(k), growth, problem.result_dtype);
}

/// The streams of one seed. From kOperands each operand's follows.
enum Stream : std::uint64_t { kX, kW, kY, kChoices = 12, kOperands = 16 };

/// Properties that are chosen for a launch. Before these come the gaps between the rows of each operand.
enum Choice : std::uint64_t { kEpsilon = 200, kParts = 202 };

std::uint64_t choose(std::uint64_t seed, std::uint64_t choice, std::uint64_t choices) {
  return draw(draw(seed, kChoices), choice) % choices;
}

/// The stream of an operand, by its name: another row in the table does not change it.
std::uint64_t stream_of(const OperandRow& row) {
  std::uint64_t stream = kOperands;
  for (const char letter : row.name) stream = draw(stream, static_cast<unsigned char>(letter));
  return stream;
}

/// What HostInputs have as `x` and `w`.
bool is_multiplied(const OperandRow& row) {
  return row.view == &Operands::x || row.view == &Operands::dy || row.view == &Operands::w;
}

HostActivation without_gaps(DType dtype, std::int64_t rows, std::int64_t elements) {
  return {.dtype = dtype, .n = rows, .features = elements, .stride = elements};
}

/// Fills the operands of a launch from one seed.
class Filler {
 public:
  Filler(const Spmm& problem, std::int64_t n, Inputs kind, std::uint64_t seed)
      : problem_(problem),
        launch_(contract_of(problem)),
        n_(n),
        kind_(kind),
        seed_(seed),
        largest_(kind == Inputs::small_integers ? largest_integer(problem) : 0) {}

  [[nodiscard]] const OperandContract& launch() const { return launch_; }

  /// What HostInputs::read has of it. `rows`: where there may be any number of them.
  [[nodiscard]] HostActivation operand(const OperandRow& row, std::int64_t rows) const {
    const std::uint64_t stream = stream_of(row);
    switch (row.form) {
      case OperandForm::activation:
        return activation(row, stream);
      case OperandForm::weight:
        return weight(stream);
      case OperandForm::dense:
        return dense(row, rows, stream);
    }
    throw Error(ErrorKind::internal, "an operand of no form");
  }
  /// `stride` 0: rows are as close as they may be, and up to two units further apart where the product alone
  /// has not that operand.
  [[nodiscard]] HostActivation activation(const OperandRow& row, std::uint64_t stream,
                                          std::int64_t stride = 0) const {
    const std::uint64_t gap = of_product(row) ? 0 : choose(seed_, stream_of(row), 3);
    HostActivation made = activation_of(problem_, launch_, row, n_, static_cast<std::int64_t>(gap));
    if (stride != 0) made.stride = stride;
    if (made.stride < made.row_length())
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("{} with rows of {} elements was asked for at a stride of {}; it must be {} or more",
                      row.name, made.row_length(), made.stride, made.row_length()));
    fill_rows(made, kind_of(row), stream);
    return made;
  }
  /// The blocks of a weight; NaN beyond the last features, of which nothing may come.
  [[nodiscard]] HostActivation weight(std::uint64_t stream) const {
    const BlockShape block = problem_.weight_block();
    const bool by_columns = problem_.by_columns();
    HostActivation made =
        without_gaps(problem_.dtype, 1, problem_.weight.blocks() * std::int64_t{block.out} * block.in);
    fill_rows(made, kind_, stream);
    const std::int64_t of_sums =
        problem_.out_features() * problem_.weights() / (problem_.epilogue.glu ? 2 : 1);
    poison_beyond(problem_.weight, problem_.taps(), block, by_columns ? problem_.in_features() : of_sums,
                  by_columns ? of_sums : problem_.in_features(), problem_.dtype, made.bytes.data());
    return made;
  }

 private:
  /// Whether the product alone has it, without what normalises its sums.
  [[nodiscard]] bool of_product(const OperandRow& row) const {
    return is_multiplied(row) || row.is_main() || row.taken(problem_);
  }
  /// What a cell computes is never exact, nor what is made of sums that are normalised: their operands, which
  /// have no arguments of their own or are not the product's, are random numbers, whatever the others are.
  [[nodiscard]] Inputs kind_of(const OperandRow& row) const {
    return row.argument && of_product(row) ? kind_ : Inputs::random;
  }
  [[nodiscard]] HostActivation dense(const OperandRow& row, std::int64_t rows, std::uint64_t stream) const {
    const DenseExtents dense = extents_of(row.per, launch_);
    HostActivation made = without_gaps(type_of(row.type, launch_),
                                       dense.any_rows    ? rows
                                       : dense.rank == 2 ? dense.extents[0]
                                                         : 1,
                                       dense.extents[static_cast<std::size_t>(dense.rank) - 1]);
    if (row.per == Per::block) {  // block scales, which skip blocks
      fill_with(made, stream, std::array{0.0f, 1.0f, 0.5f, 0.0f, 1.0f, 2.0f});
    } else if (is_scale(row)) {  // with them, integers stay halves
      fill_with(made, stream, std::array{1.0f, 2.0f, 4.0f, -1.0f, -2.0f});
      for (std::int64_t i = 0; i < made.features && kind_of(row) == Inputs::random; ++i)
        store(made.dtype,
              to_double(made.dtype, made.bytes.data(), i) * (0.3 + 0.1 * static_cast<double>(i % 5)),
              made.bytes.data(), i);
    } else if (row.multiplies) {  // none is fixed by its situation or feature alone
      fill_with(made, stream, std::array{1.0f, -1.0f, 2.0f, 0.5f, -2.0f, 0.0f, 1.0f});
    } else {
      fill_rows(made, kind_of(row), stream);
    }
    return made;
  }
  void fill_rows(HostActivation& to, Inputs kind, std::uint64_t stream) const {
    const std::int64_t length = to.row_length();
    to.bytes.resize(static_cast<std::size_t>(strided_elements(to.rows(), length, to.stride)) *
                    size_of(to.dtype));
    const std::vector<float> gap(static_cast<std::size_t>(to.stride - length),
                                 std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t row = 0; row < to.rows(); ++row) {
      fill(to.dtype, to.bytes.data(), row * to.stride, length, kind, largest_, draw(seed_, stream),
           row * length);
      if (row + 1 < to.rows()) store(to.dtype, gap, to.bytes.data(), row * to.stride + length);
    }
  }
  /// Each element is one of some values.
  template <std::size_t kCount>
  void fill_with(HostActivation& to, std::uint64_t stream, const std::array<float, kCount>& values) const {
    std::vector<float> numbers(static_cast<std::size_t>(to.n * to.features));
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = values[draw(draw(seed_, stream), i) % kCount];
    to.bytes.resize(numbers.size() * size_of(to.dtype));
    store(to.dtype, numbers, to.bytes.data(), 0);
  }

  const Spmm& problem_;
  OperandContract launch_;
  std::int64_t n_;
  Inputs kind_;
  std::uint64_t seed_;
  std::int64_t largest_;
};

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

/// One, a few, many, or more than batch rows.
std::int64_t drawn_parts(std::int64_t n, std::uint64_t seed) {
  const std::array<std::int64_t, 4> choices{1, 3, 16, n + 3};
  return choices[choose(seed, kParts, choices.size())];
}

}  // namespace

void take_parts(const Spmm& problem, HostInputs& inputs, std::int64_t parts) {
  inputs.at("dnorm") =
      Filler(problem, inputs.n, inputs.kind, inputs.seed).operand(operand_row("dnorm"), parts);
}

HostInputs make_inputs(const Spmm& problem, std::int64_t n, Inputs kind, std::uint64_t seed,
                       std::int64_t x_stride) {
  const Filler filler(problem, n, kind, seed);
  const OperandContract& launch = filler.launch();
  const bool forward = is_forward(launch);
  HostActivation x = filler.activation(operand_row(forward ? "x" : "dy"), kX, x_stride);
  HostInputs inputs;
  inputs.kind = kind;
  inputs.seed = seed;
  inputs.n = n;
  inputs.x_stride = x.stride;
  inputs.x = std::move(x.bytes);
  inputs.w = filler.weight(kW).bytes;
  for (const OperandRow* row : TakenOperands(launch))
    if (!is_multiplied(*row) && row->access(launch) != Access::written)
      inputs.read.emplace(row->name, filler.operand(*row, drawn_parts(n, seed)));
  if (launch.epilogue.scale) {
    // float64 problems are given numbers that no float is. Powers of two keep integers exact.
    const bool any = problem.sum_type() == DType::f64 && kind == Inputs::random;
    inputs.alpha = any ? 0.1 : 0.5;
    inputs.beta = any ? -1.7 : -2;
    inputs.y = filler.activation(operand_row(forward ? "y" : "dx"), kY);
  }
  if (normalises(launch)) {
    // An epsilon that decides little, and one that decides much. Results are large where it is all of a
    // variance.
    const bool large = problem.result_dtype == DType::f16 || choose(seed, kEpsilon, 2) == 0;
    inputs.epsilon = large ? 0.3 : 1e-5;
    if (!forward) {
      spread_rows(inputs.at("sums"), launch.normalised_groups());
      measure(inputs.of("sums"), inputs.epsilon, inputs.at("statistics"));
    }
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
