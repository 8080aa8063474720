#pragma once

#include <cstdint>
#include <string>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>

namespace sparsekiln {

/// What an oracle found.
struct CheckResult {
  bool ok = true;
  double rel_error = 0;        ///< relative Frobenius norm over the finite elements, for people
  double max_error_ratio = 0;  ///< the largest |error| / bound over all elements; above 1 is not ok
  std::int64_t wrong = 0;      ///< elements out of their bound
  std::int64_t unwritten = 0;  ///< elements of a result that were never written
  std::int64_t stray = 0;      ///< elements beside it that were
  std::string first_failure;   ///< the first thing wrong, with what was expected; empty where `ok`
};

/// What adds the products up.
enum class Adder : std::uint8_t {
  float32,       ///< IEEE 754's: CUDA cores and the cpu
  tensor_cores,  ///< adds several products at once, and truncates
  warpgroups,    ///< the same; several instructions add 8-bit floats up before float32 does
};
/// The adder of the kernels of a plan: tensor cores where any of them uses those. `ieee`: float32 products
/// that only float32 arithmetic forms.
[[nodiscard]] Adder adder_of(bool ieee, const Plan& plan);
/// How many roundings of one sum are as bad as what the adder does to it, see spmm_check.h.
[[nodiscard]] double loss(Adder adder);

/// |error| / bound; no bound is met by a NaN or Inf that the reference does not have.
[[nodiscard]] double error_ratio(double value, double expected, double bound);
/// The same where nothing but equality passes, the sign of a zero included: 0, or Inf.
[[nodiscard]] double exact_ratio(double value, double expected);
/// An exact sum as a type holds it.
[[nodiscard]] double rounded(double exact, DType type);

}  // namespace sparsekiln
