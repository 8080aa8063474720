#include "oracle/normalise_reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>

#include "oracle/bounded_arithmetic.h"
#include "oracle/cell_reference.h"

namespace sparsekiln {
namespace {

constexpr std::size_t kGates = std::tuple_size_v<BoundedGates>;

struct Moments {
  Bounded mean;
  Bounded inverse;
};

/// 1/√s.
Bounded inverse_root(Bounded s, double u) {
  constexpr double kRoundings = 4;  // of a root and a quotient, or of an approximation of both
  const auto at = [](double square) {
    return square > 0 ? 1 / std::sqrt(square) : std::numeric_limits<double>::infinity();
  };
  const double value = 1 / std::sqrt(s.value);
  const double moved =
      s.error == 0 ? 0 : std::max(at(s.value - s.error) - value, value - at(s.value + s.error));
  return {value, moved + kRoundings * u * value};
}

Moments moments_of(std::span<const double> z, double epsilon, const BoundedArithmetic& in) {
  std::vector<Bounded> numbers;
  numbers.reserve(z.size());
  for (const double number : z) numbers.push_back({number});
  const Bounded mean = in.mean(numbers);
  double squares = 0;
  for (const double number : z) squares += (number - mean.value) * (number - mean.value);
  const auto count = static_cast<double>(z.size());
  const double square = squares / count;
  const double off = mean.error * mean.error;
  const double u = in.unit();
  const double error = off + (roundings_of(count) + 4) * u * (square + off) + u * (square + epsilon);
  return {mean, inverse_root({square + epsilon, error}, u)};
}

/// One feature of a group.
struct Normalised {
  Bounded u;
  Bounded v;
};
Normalised normalised(double z, const Moments& moments, double gain, double bias,
                      const BoundedArithmetic& in) {
  const Bounded u = in.multiply(in.subtract({z}, moments.mean), moments.inverse);
  return {u, in.add(in.multiply(u, {gain}), {bias})};
}

/// v·multiplier + addend.
Bounded argument(Bounded v, const NormalisedRowOperands& operands, std::size_t feature,
                 const BoundedArithmetic& in) {
  if (!operands.multiplier.empty()) v = in.multiply(v, {operands.multiplier[feature]});
  return operands.addend.empty() ? v : in.add(v, {operands.addend[feature]});
}

std::optional<double> multiplier_of(const NormalisedRowOperands& operands, std::size_t feature) {
  if (operands.multiplier.empty()) return std::nullopt;
  return operands.multiplier[feature];
}

/// The features of all groups of a row.
std::vector<Normalised> features_of(std::span<const double> z, std::span<const Moments> moments,
                                    const NormalisedRowOperands& operands, const BoundedArithmetic& in) {
  const std::size_t features = z.size() / moments.size();
  std::vector<Normalised> all;
  all.reserve(z.size());
  for (std::size_t i = 0; i < z.size(); ++i)
    all.push_back(normalised(z[i], moments[i / features], operands.gain[i], operands.bias[i], in));
  return all;
}

BoundedGates arguments_of(std::span<const Normalised> all, std::size_t feature) {
  BoundedGates arguments;
  for (std::size_t gate = 0; gate < kGates; ++gate)
    arguments[gate] = all[gate * (all.size() / kGates) + feature].v;
  return arguments;
}

/// dx of a group from e: (e - mean(e) - u·mean(e·u)) / σ.
void finish(std::span<const Bounded> e, std::span<const Normalised> features, Bounded inverse,
            const BoundedArithmetic& in, std::vector<Bounded>& dx) {
  std::vector<Bounded> products;
  for (std::size_t i = 0; i < e.size(); ++i) products.push_back(in.multiply(e[i], features[i].u));
  const Bounded mean = in.mean(e);
  const Bounded mean_of_products = in.mean(products);
  for (std::size_t i = 0; i < e.size(); ++i)
    dx.push_back(in.multiply(
        in.subtract(in.subtract(e[i], mean), in.multiply(features[i].u, mean_of_products)), inverse));
}

}  // namespace

NormalisedRow normalised_row(const Epilogue& ends, std::span<const double> z, double epsilon,
                             const NormalisedRowOperands& operands, DType sums) {
  const BoundedArithmetic in(sums);
  if (sums != DType::f64) epsilon = static_cast<double>(static_cast<float>(epsilon));
  const std::size_t groups = ends.lstm ? kGates : 1;
  const std::size_t features = z.size() / groups;
  NormalisedRow row;
  std::vector<Moments> moments;
  for (std::size_t group = 0; group < groups; ++group) {
    moments.push_back(moments_of(z.subspan(group * features, features), epsilon, in));
    row.statistics.push_back(moments.back().mean);
    row.statistics.push_back(moments.back().inverse);
  }
  const std::vector<Normalised> all = features_of(z, moments, operands, in);
  for (std::size_t feature = 0; feature < features; ++feature) {
    if (ends.lstm) {
      const CellReference cell = cell_reference(arguments_of(all, feature), multiplier_of(operands, feature),
                                                operands.c_before[feature], sums);
      row.y.push_back(cell.h);
      row.c.push_back(cell.c);
    } else {
      row.y.push_back(in.activated(ends.activation, argument(all[feature].v, operands, feature, in)));
    }
  }
  return row;
}

NormalisedRowGradient normalised_row_gradient(const Epilogue& ends, std::span<const double> z,
                                              std::span<const double> statistics,
                                              const NormalisedRowOperands& operands,
                                              std::span<const Bounded> dh, DType sums) {
  const BoundedArithmetic in(sums);
  const std::size_t groups = ends.lstm ? kGates : 1;
  const std::size_t features = z.size() / groups;
  std::vector<Moments> moments;
  for (std::size_t group = 0; group < groups; ++group)
    moments.push_back({{statistics[2 * group]}, {statistics[2 * group + 1]}});
  const std::vector<Normalised> all = features_of(z, moments, operands, in);
  NormalisedRowGradient row;
  row.dbias.resize(z.size());  // the gradient of v
  for (std::size_t feature = 0; feature < features; ++feature) {
    if (ends.lstm) {
      const CellGradientReference cell = cell_gradient_reference(
          dh[feature],
          CellOfArguments{arguments_of(all, feature), multiplier_of(operands, feature), operands.c[feature],
                          operands.c_before[feature], operands.dc[feature]},
          sums);
      for (std::size_t gate = 0; gate < kGates; ++gate) row.dbias[gate * features + feature] = cell.dz[gate];
      row.dc_before.push_back(cell.dc_before);
      continue;
    }
    const Bounded v = all[feature].v;
    Bounded d = dh[feature];
    if (ends.activation != Activation::none)
      d = in.multiply(d, in.derivative(ends.activation, argument(v, operands, feature, in)));
    if (ends.add) row.daddend.push_back(d);
    if (ends.multiply) {
      row.dmultiplier.push_back(in.multiply(d, v));
      d = in.multiply(d, {operands.multiplier[feature]});
    }
    row.dbias[feature] = d;
  }
  std::vector<Bounded> e;
  for (std::size_t i = 0; i < z.size(); ++i) {
    row.dgain.push_back(in.multiply(row.dbias[i], all[i].u));
    e.push_back(in.multiply(row.dbias[i], {operands.gain[i]}));
  }
  for (std::size_t group = 0; group < groups; ++group)
    finish(std::span(e).subspan(group * features, features),
           std::span(all).subspan(group * features, features), moments[group].inverse, in, row.dx);
  return row;
}

}  // namespace sparsekiln
