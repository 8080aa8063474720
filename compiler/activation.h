#pragma once

#include <span>
#include <string>
#include <string_view>

#include <sparsekiln/problem.h>

namespace sparsekiln {

/// The properties of an activation function on the host. A new one is an enumerator (problem.h), a row here,
/// its LLVM IR (compiler/cpu/activation_ir.cpp), and its device code (templates/activation.cuh).
struct ActivationRow {
  Activation value;
  std::string_view name;    ///< in texts and identities, and in torch.nn.functional
  std::string_view device;  ///< the struct in templates/activation.cuh
  double (*function)(double z);
  double (*derivative)(double z);  ///< at a kink the one-sided derivative that PyTorch takes
  double lipschitz;                ///< the largest magnitude of the derivative, rounded up
  /// Whether the derivative at the function's result is the derivative at z: what is stored for the backward
  /// pass may be y.
  bool derivative_from_result = false;
  /// How far float32 arithmetic may be off, in units of its roundoff u, 2^-24 of float32: the function by
  /// value_units + value_units_z2·z², relative to itself; the derivative by derivative_units, absolutely.
  /// 0: exact.
  double value_units = 0;
  double value_units_z2 = 0;
  double derivative_units = 0;
  /// Instructions of PTX for one value: of the function, and of the derivative with its product.
  double value_cost = 0;
  double derivative_cost = 0;
};

/// All of them, `none` first, each at the place of its enumerator's number.
[[nodiscard]] std::span<const ActivationRow> activation_rows();
[[nodiscard]] const ActivationRow& row_of(Activation activation);
/// "relu, gelu, …": all but `none`.
[[nodiscard]] std::string activation_names();

/// How far a kernel's arithmetic in `sums`, f32 or f64, of roundoff u may be off with the function at z: by
/// the row's units, and by what results below the normal numbers of that type lose.
[[nodiscard]] double function_error(const ActivationRow& row, double z, DType sums, double u);

}  // namespace sparsekiln
