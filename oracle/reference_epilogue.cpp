#include "oracle/reference_epilogue.h"

#include <cmath>

#include "compiler/activation.h"
#include "compiler/element.h"

namespace sparsekiln {
namespace {

double unit_roundoff() { return element_format(DType::f32).unit_roundoff; }

/// A result of float32 arithmetic on exact operands, which needs no rounding.
bool is_exact(double value) { return std::fabs(value) <= 0x1p22 && value * 2 == std::rint(value * 2); }

Bounded rounded(Bounded value) {
  if (value.error != 0 || !is_exact(value.value)) value.error += unit_roundoff() * std::fabs(value.value);
  return value;
}

Bounded activated(Activation activation, Bounded z) {
  const ActivationRow& row = row_of(activation);
  return {row.function(z.value), row.lipschitz * z.error + function_error(row, z.value, unit_roundoff())};
}

/// alpha·sum + bias, one multiply-add.
Bounded scaled(double alpha, Bounded sum, double bias) {
  return rounded({alpha * sum.value + bias, std::fabs(alpha) * sum.error});
}

}  // namespace

Bounded apply(const Epilogue& epilogue, const EpilogueOperands& operands, Bounded sum, Bounded v_sum) {
  const bool has_z = epilogue.scale || epilogue.bias;
  Bounded a = has_z ? scaled(operands.alpha, sum, operands.bias) : sum;
  a = activated(epilogue.activation, a);
  if (epilogue.glu) {
    const Bounded t = has_z ? scaled(operands.alpha, v_sum, operands.v_bias) : v_sum;
    a = rounded({a.value * t.value, std::fabs(a.value) * t.error + std::fabs(t.value) * a.error});
  }
  if (epilogue.residual) a = rounded({a.value + operands.residual, a.error});
  if (operands.beta != 0) a = rounded({a.value + operands.beta * operands.y, a.error});
  return a;
}

double derivative_error(Activation activation) {
  return row_of(activation).derivative_units * unit_roundoff();
}

}  // namespace sparsekiln
