#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/operand_table.h"

namespace sparsekiln {

/// The shape of an output of a launch whose first operand, x or for grad_input dy, has the shape `first`: a
/// matrix of a linear layer, or a batch of such, the images of a convolution or their rows. The weight is
/// [blocks, block_out, block_in], or with an axis for the taps where all blocks have as many. Where a launch
/// would refuse `first`, any shape. Throws `invalid_argument` where the shape does not follow from `first`.
[[nodiscard]] std::vector<std::int64_t> output_shape(const OperandRow& output,
                                                     const OperandContract& contract,
                                                     std::span<const std::int64_t> first);

}  // namespace sparsekiln
