#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "emulator/program/draft.h"
#include "emulator/program/flow.h"

namespace sparsekiln::emulator {

/// The places of virtual rows in the register file of a warp.
struct RowPlan {
  std::vector<std::uint32_t> offset;  ///< of each VirtualRow, in bytes; kNoRow: nothing uses it
  std::vector<std::uint32_t> zeroed;  ///< VirtualRows that are read where nothing wrote them: zero at start
  std::uint32_t bytes = 0;            ///< of the register file
  std::uint32_t async_registers = 0;  ///< rows at the start of the file, those with VirtualRow::async
};

/// Gives each virtual row a place for as long as it is needed: liveness over the blocks, then a linear scan
/// (Poletto and Sarkar, 1999) in which each row needs one stretch of the code. Rows are aligned to 64 bytes
/// (masks to 4). What one instruction writes shares no place with what it reads. A lane that waits while
/// others run needs no care: handlers leave its part of every row alone, and it comes back to code where its
/// own rows are live.
[[nodiscard]] RowPlan plan_rows(std::span<const Draft> drafts, std::span<const BasicBlock> blocks,
                                std::span<const VirtualRow> rows);

}  // namespace sparsekiln::emulator
