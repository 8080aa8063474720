#pragma once

#include <cstdint>
#include <vector>

#include "emulator/program/program.h"

namespace sparsekiln::emulator {

/// A row before it has a place: a virtual register, or what the decoder added (a constant, a negated
/// predicate).
struct VirtualRow {
  int bytes = 4;       ///< of an element: 2, 4 or 8; 0: a predicate's mask
  bool fixed = false;  ///< filled when the warp starts, written by no instruction: keeps its place throughout
  bool async = false;  ///< Program::async_registers
};

/// Where control goes after an instruction.
enum class Flow : std::uint8_t {
  next,
  branch,  ///< to `target`; to the next as well where it is guarded
  end,     ///< lanes end; those that the guard leaves out go on
};

/// An instruction on its way into a Program: its operands are VirtualRows.
struct Draft {
  Instruction instruction;  ///< guard: a VirtualRow, or kNoGuard
  std::vector<std::uint32_t> written;
  std::vector<std::uint32_t> read;
  bool async = false;  ///< accesses its registers after it was issued, too
  Flow flow = Flow::next;
  std::uint32_t target = 0;  ///< of a branch: index of a draft

  [[nodiscard]] bool guarded() const { return instruction.guard != kNoGuard; }
};

}  // namespace sparsekiln::emulator
