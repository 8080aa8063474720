#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <sparsekiln/problem.h>

#include "autotune/reference.h"
#include "compiler/spmm.h"

namespace sparsekiln {

/// What x (dy, for grad_input) and W are filled with, which decides how sharp a check can be.
enum class Inputs : std::uint8_t {
  small_integers,  ///< non-zero; every product and every partial sum, in any order, is exact in float32
  random,          ///< uniform in [-1, 1), rounded to the type
};

/// x and W in host memory.
struct HostInputs {
  Inputs kind = Inputs::random;
  std::int64_t n = 0;
  std::int64_t x_stride = 0;  ///< elements
  std::vector<std::byte> x;   ///< n × x_stride elements; what lies between the rows is NaN
  std::vector<std::byte> w;   ///< blocks × block_out × block_in elements

  [[nodiscard]] HostOperands operands() const { return {x.data(), w.data(), x_stride}; }
};

/// Inputs for a batch of n; the same arguments give the same bytes on every machine. `x_stride` 0:
/// in_features. Throws `invalid_argument` where the stride is less than a row, or where rows are too long for
/// exact integers.
[[nodiscard]] HostInputs make_inputs(const Spmm& problem, std::int64_t n, Inputs kind, std::uint64_t seed,
                                     std::int64_t x_stride = 0);

/// Overwrites a few elements of x, chosen by the seed, with Inf, -Inf and NaN; the rest of x stays.
void plant_non_finite(const Spmm& problem, HostInputs& inputs, std::uint64_t seed);

}  // namespace sparsekiln
