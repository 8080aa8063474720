#pragma once

#include <cstdint>
#include <string_view>

#include "compiler/operand_table.h"
#include "runtime/operand_images.h"
#include "runtime/operand_region.h"

namespace sparsekiln {

// Checks of single operands, by the form of their memory. All throw as check_operands does.

/// An operand that a kernel takes was not given.
[[noreturn, gnu::cold]] void refuse_missing(std::string_view name, const OperandContract& contract);

/// `images`: the extents of a convolution's.
[[nodiscard]] Activation2D check_activation(const OperandRow& row, const TensorView& view,
                                            const ImageExtents& images, const OperandContract& contract,
                                            std::int32_t device);
[[nodiscard]] Region check_dense(const OperandRow& row, const TensorView& view,
                                 const OperandContract& contract, std::int32_t device);
[[nodiscard]] Region check_weight(const OperandRow& row, const TensorView& view,
                                  const OperandContract& contract, std::int32_t device);

}  // namespace sparsekiln
