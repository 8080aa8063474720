#pragma once

#include <cstdint>
#include <string_view>

#include <sparsekiln/binary.h>
#include <sparsekiln/tensor_view.h>

namespace sparsekiln {

/// Throws `invalid_argument`, with what the kernel takes, unless a weight (`name` says which operand it is)
/// has the type, shape, strides and address that the contract promises: of blocks, unpacked. Its device is
/// not looked at.
void check_blocks(std::string_view name, const TensorView& weight, DType type,
                  const OperandContract& contract);
/// The equivalent for what Kernel::pack made, in any dense shape: its axes are not the layout's any more.
void check_packed(std::string_view name, const TensorView& w, const OperandContract& contract);
/// Elements that the weight of a contract has.
[[nodiscard]] std::int64_t weight_elements(const OperandContract& contract);

}  // namespace sparsekiln
