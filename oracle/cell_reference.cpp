#include "oracle/cell_reference.h"

#include "oracle/bounded_arithmetic.h"

namespace sparsekiln {
namespace {

BoundedGates activated(const BoundedGates& arguments, const BoundedArithmetic& in) {
  BoundedGates gates;
  for (std::size_t gate = 0; gate < gates.size(); ++gate)
    gates[gate] =
        in.activated(gate == kCandidateGate ? Activation::tanh : Activation::sigmoid, arguments[gate]);
  return gates;
}

Bounded multiplied(Bounded value, std::optional<double> multiplier, const BoundedArithmetic& in) {
  return multiplier ? in.multiply(value, {*multiplier}) : value;
}

struct CellOfGates {
  BoundedGates gates;
  std::optional<double> multiplier;
  double c;
  double c_before;
  double dc;
};

CellGradientReference gradient_of(Bounded dh, const CellOfGates& cell, const BoundedArithmetic& in) {
  const Bounded one{1};
  const auto& [i, f, g, o] = cell.gates;
  const Bounded t = in.activated(Activation::tanh, {cell.c});
  const auto one_minus = [&](Bounded a) { return in.subtract(one, a); };
  const Bounded d = in.add(in.multiply(in.multiply(dh, o), one_minus(in.multiply(t, t))), {cell.dc});
  const auto slope = [&](Bounded gate) { return in.multiply(gate, one_minus(gate)); };
  return {
      .dz = {in.multiply(in.multiply(d, multiplied(g, cell.multiplier, in)), slope(i)),
             in.multiply(in.multiply(d, {cell.c_before}), slope(f)),
             in.multiply(multiplied(in.multiply(d, i), cell.multiplier, in), one_minus(in.multiply(g, g))),
             in.multiply(in.multiply(dh, t), slope(o))},
      .dc_before = in.multiply(d, f)};
}

}  // namespace

CellReference cell_reference(const BoundedGates& sums, const std::array<double, 4>& projection,
                             double c_before, DType type) {
  const BoundedArithmetic in(type);
  BoundedGates arguments;
  for (std::size_t gate = 0; gate < sums.size(); ++gate)
    arguments[gate] = in.add(sums[gate], {projection[gate]});
  return cell_reference(arguments, std::nullopt, c_before, type);
}

CellReference cell_reference(const BoundedGates& arguments, std::optional<double> multiplier, double c_before,
                             DType type) {
  const BoundedArithmetic in(type);
  CellReference cell;
  cell.activations = activated(arguments, in);
  const auto& [i, f, g, o] = cell.activations;
  cell.c = in.add(in.multiply(f, {c_before}), in.multiply(i, multiplied(g, multiplier, in)));
  cell.h = in.multiply(o, in.activated(Activation::tanh, cell.c));
  return cell;
}

CellGradientReference cell_gradient_reference(Bounded sum, const CellOfGradient& cell, DType type) {
  const BoundedArithmetic in(type);
  BoundedGates gates;
  for (std::size_t gate = 0; gate < gates.size(); ++gate) gates[gate] = {cell.activations[gate]};
  return gradient_of(in.add(sum, {cell.residual}), {gates, std::nullopt, cell.c, cell.c_before, cell.dc}, in);
}

CellGradientReference cell_gradient_reference(Bounded dh, const CellOfArguments& cell, DType type) {
  const BoundedArithmetic in(type);
  return gradient_of(dh, {activated(cell.arguments, in), cell.multiplier, cell.c, cell.c_before, cell.dc},
                     in);
}

}  // namespace sparsekiln
