#include "oracle/cell_reference.h"

#include <cmath>

#include "compiler/activation.h"

namespace sparsekiln {
namespace {

/// Numbers whose errors are bounded to first order; each operation adds a rounding of its result.
class Arithmetic {
 public:
  explicit Arithmetic(DType type) : type_(type), u_(error_of_operation(type)) {}

  [[nodiscard]] Bounded add(Bounded a, Bounded b) const {
    return rounded(a.value + b.value, a.error + b.error);
  }
  [[nodiscard]] Bounded multiply(Bounded a, Bounded b) const {
    return rounded(a.value * b.value, scaled(a.value, b.error) + scaled(b.value, a.error));
  }
  [[nodiscard]] Bounded activated(Activation activation, Bounded z) const {
    const ActivationRow& row = row_of(activation);
    // A kernel has the same infinity or NaN, and the limit of the function, which is finite.
    if (!std::isfinite(z.value)) return {row.function(z.value), u_};
    return {row.function(z.value), row.lipschitz * z.error + function_error(row, z.value, type_, u_)};
  }

 private:
  [[nodiscard]] Bounded rounded(double value, double error) const {
    return {value, error + u_ * std::fabs(value)};
  }
  static double scaled(double factor, double error) { return error == 0 ? 0 : std::fabs(factor) * error; }

  DType type_;
  double u_;
};

Bounded negative(Bounded a) { return {-a.value, a.error}; }

}  // namespace

CellReference cell_reference(const BoundedGates& sums, const std::array<double, 4>& projection,
                             double c_before, DType type) {
  const Arithmetic in(type);
  CellReference cell;
  for (std::size_t gate = 0; gate < sums.size(); ++gate)
    cell.activations[gate] = in.activated(gate == 2 ? Activation::tanh : Activation::sigmoid,
                                          in.add(sums[gate], {projection[gate]}));
  const auto& [i, f, g, o] = cell.activations;
  cell.c = in.add(in.multiply(f, {c_before}), in.multiply(i, g));
  cell.h = in.multiply(o, in.activated(Activation::tanh, cell.c));
  return cell;
}

CellGradientReference cell_gradient_reference(Bounded sum, const CellOfGradient& cell, DType type) {
  const Arithmetic in(type);
  const Bounded one{1};
  const Bounded i{cell.activations[0]};
  const Bounded f{cell.activations[1]};
  const Bounded g{cell.activations[2]};
  const Bounded o{cell.activations[3]};
  const Bounded t = in.activated(Activation::tanh, {cell.c});
  const auto one_minus = [&](Bounded a) { return in.add(one, negative(a)); };
  const Bounded dh = in.add(sum, {cell.residual});
  const Bounded d = in.add(in.multiply(in.multiply(dh, o), one_minus(in.multiply(t, t))), {cell.dc});
  const auto slope = [&](Bounded gate) { return in.multiply(gate, one_minus(gate)); };
  return {
      .dz = {in.multiply(in.multiply(d, g), slope(i)), in.multiply(in.multiply(d, {cell.c_before}), slope(f)),
             in.multiply(in.multiply(d, i), one_minus(in.multiply(g, g))),
             in.multiply(in.multiply(dh, t), slope(o))},
      .dc_before = in.multiply(d, f)};
}

}  // namespace sparsekiln
