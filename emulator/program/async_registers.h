#pragma once

#include <cstdint>
#include <vector>

#include "emulator/program/draft.h"
#include "emulator/program/program.h"

namespace sparsekiln::emulator {

/// Bytes of the row of a register that wgmma accesses.
inline constexpr std::uint32_t kAsyncRowBytes = kLanes * sizeof(std::uint32_t);

/// Gives VirtualRow::async to copies of registers that have it, and to what these are copied from: compilers
/// put such movs between wgmmas, and ptxas makes one register of both. Marks the instructions that access one
/// of them with kTouchesAsyncRegisters, all but the wgmmas themselves. Other instructions lose
/// kCopiesRegister, which then says that a mov only gives a register another name.
void mark_async_registers(std::vector<Draft>& drafts, std::vector<VirtualRow>& rows);

}  // namespace sparsekiln::emulator
