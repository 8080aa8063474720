#pragma once

#include <cstdint>
#include <vector>

#include "compiler/spmm.h"
#include "oracle/host_operands.h"

namespace sparsekiln {

// What a product multiplies, in float64: operands as a derivative, block scales and tf32 make them.

/// Row `row` of x, of which `to` has all features. `scratch` may hold anything.
void read_x(const Spmm& problem, const HostOperands& operands, std::int64_t row, std::vector<double>& to,
            std::vector<double>& scratch);

/// A block of W, in the order of its memory, which fills `to`; false where it is skipped.
[[nodiscard]] bool read_block(const Spmm& problem, const HostOperands& operands, std::int32_t block,
                              std::vector<double>& to);

}  // namespace sparsekiln
