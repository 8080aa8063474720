#pragma once

#include <cstddef>
#include <cstdint>

#include <sparsekiln/binary.h>
#include <sparsekiln/compile.h>

#include "compiler/launch_operands.h"
#include "runtime/operand_refusal.h"

namespace sparsekiln {

/// Operands that keep a contract, as launches take them: `matrices` times the first one, each with the
/// addresses of its activations moved on.
struct CheckedOperands {
  LaunchOperands first;
  std::int64_t matrices = 1;  ///< 0: nothing to compute
  /// Bytes from one matrix to the next.
  std::int64_t x_step = 0;
  std::int64_t y_step = 0;
  std::int64_t residual_step = 0;
  std::int64_t z_step = 0;

  /// Turns to the next matrix.
  void advance() {
    const auto moved = [](const void* address, std::int64_t bytes) -> const void* {
      return address == nullptr ? nullptr : static_cast<const std::byte*>(address) + bytes;
    };
    first.x = moved(first.x, x_step);
    first.y = const_cast<void*>(moved(first.y, y_step));
    first.residual = moved(first.residual, residual_step);
    first.z = moved(first.z, z_step);
  }
};

/// Throws `invalid_argument` that names the operand, before anything is launched: not given, of another type,
/// shape or device, strides or addresses that are not what the contract promises, a batch that the kernel was
/// not compiled for, or what is computed overlapping what is read. `device`: where the kernel is, as
/// TensorView::device. What it costs is a few dozen comparisons: no allocation, no string, no driver call.
[[nodiscard]] CheckedOperands check_operands(const Operands& operands, const OperandContract& contract,
                                             std::int32_t device);

}  // namespace sparsekiln
