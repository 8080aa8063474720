#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <sparsekiln/binary.h>
#include <sparsekiln/compile.h>

#include "compiler/operand_table.h"
#include "runtime/operand_refusal.h"

namespace sparsekiln {

/// Operands that keep a contract, as launches take them: `matrices` times the first one, each with the
/// addresses of its activations moved on.
struct CheckedOperands {
  LaunchOperands first;
  std::int64_t matrices = 1;  ///< 0: nothing to compute
  /// An address of `first`, and the bytes from one matrix to the next.
  struct Step {
    std::uint16_t address;
    std::int64_t bytes;
  };
  std::array<Step, TakenOperands::kMost> steps;  ///< `moving` of them
  std::size_t moving = 0;

  /// Turns to the next matrix.
  void advance() {
    for (std::size_t i = 0; i < moving; ++i) {
      std::byte* const at = reinterpret_cast<std::byte*>(&first) + steps[i].address;
      const std::byte* address = nullptr;
      std::memcpy(&address, at, sizeof(address));
      if (address != nullptr) address += steps[i].bytes;
      std::memcpy(at, &address, sizeof(address));
    }
  }
};

/// Throws `invalid_argument` that names the operand, before anything is launched: not given, of another type,
/// shape or device, strides or addresses that are not what the contract promises, a batch that the kernel was
/// not compiled for, or what is computed overlapping what is read. `device`: where the kernel is, as
/// TensorView::device; `taken`: the operands of the contract. What it costs is a few dozen comparisons: no
/// allocation, no string, no driver call.
[[nodiscard]] CheckedOperands check_operands(const Operands& operands, const OperandContract& contract,
                                             const TakenOperands& taken, std::int32_t device);

}  // namespace sparsekiln
