#include "emulator/program/async_registers.h"

#include <algorithm>

namespace sparsekiln::emulator {
namespace {

bool copies(const Draft& draft) {
  return (draft.instruction.traits & kCopiesRegister) != 0 && !draft.guarded();
}

void spread_to_copies(const std::vector<Draft>& drafts, std::vector<VirtualRow>& rows) {
  for (bool spreads = true; spreads;) {
    spreads = false;
    for (const Draft& draft : drafts) {
      if (!copies(draft)) continue;
      VirtualRow& to = rows[draft.written[0]];
      VirtualRow& from = rows[draft.read[0]];
      if (to.async == from.async) continue;
      to.async = from.async = spreads = true;
    }
  }
}

}  // namespace

void mark_async_registers(std::vector<Draft>& drafts, std::vector<VirtualRow>& rows) {
  const auto is_async = [&](std::uint32_t row) { return rows[row].async; };
  if (std::any_of(rows.begin(), rows.end(), [](const VirtualRow& row) { return row.async; }))
    spread_to_copies(drafts, rows);
  for (Draft& draft : drafts) {
    const bool touches = !draft.async && (std::any_of(draft.written.begin(), draft.written.end(), is_async) ||
                                          std::any_of(draft.read.begin(), draft.read.end(), is_async));
    std::uint8_t& traits = draft.instruction.traits;
    if (!touches || draft.guarded()) traits &= static_cast<std::uint8_t>(~kCopiesRegister);
    if (touches) traits |= kTouchesAsyncRegisters;
  }
}

}  // namespace sparsekiln::emulator
