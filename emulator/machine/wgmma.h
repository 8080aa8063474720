#pragma once

#include <cstdint>
#include <span>

#include "emulator/machine/async_operation.h"
#include "emulator/machine/warp_state.h"
#include "emulator/machine/wgmma_state.h"

/// wgmma on its way (PTX ISA 9.7.15): groups, the order in which operations are run, and the rules for
/// registers.
namespace sparsekiln::emulator {

/// The rows that an operation accesses, and its shape, a number that others of the same shape have.
struct MatrixRegisters {
  std::span<const std::uint32_t> sums;
  std::span<const std::uint32_t> a;
  std::uint32_t shape = 0;
};

/// Whom the accesses of the wgmma that a warp issues next are made by.
[[nodiscard]] Agent matrix_agent(const Warp& warp);
/// Faults unless the warps of the warpgroup agree, and the registers may be accessed. Gives what they share
/// of the operation, valid until the warp's next.
[[nodiscard]] WarpgroupStep& check_matrix(Warp& warp, const MatrixOperation& operation,
                                          const MatrixRegisters& registers);
/// Runs the operation now or later, as the seed says.
void queue_matrix(Warp& warp, const MatrixOperation& operation);
void fence_matrix(Warp& warp, const Instruction& instruction);
void commit_matrix(Warp& warp, const Instruction& instruction);
/// Until at most `pending` groups are on their way.
void wait_matrix(Warp& warp, const Instruction& instruction, std::uint32_t pending);

/// For an instruction with kTouchesAsyncRegisters, before it runs.
void touch_async_registers(Warp& warp, const Instruction& instruction, Mask mask);

}  // namespace sparsekiln::emulator
