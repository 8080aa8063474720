#include <bit>
#include <string>

#include "emulator/machine/block.h"
#include "emulator/machine/warp.h"

namespace sparsekiln::emulator {

Site site_of(const Block& block, std::uint32_t block_number, std::uint32_t warp, int lane, std::uint32_t pc) {
  Site site;
  site.program = &block.grid.program;
  site.pc = pc;
  block.grid.block_place(block_number, site.block);
  block.grid.thread_place(warp * kLanes + static_cast<std::uint32_t>(lane), site.thread);
  return site;
}

Site site_of(const Warp& warp, const Instruction& instruction, int lane) {
  return site_of(*warp.block, warp.block->index, warp.index, lane, pc_of(warp, instruction));
}

void fault(FaultKind kind, const Warp& warp, const Instruction& instruction, int lane,
           const std::string& what) {
  throw Fault(kind,
              std::string(name(kind)) + ": " + what + "; " + describe(site_of(warp, instruction, lane)));
}

void fault_missing(const Warp& warp, const Instruction& instruction, int lane, Mask missing) {
  const Mask parted = missing & ~warp.active;
  const std::string who = "lane " + std::to_string(std::countr_zero(parted != 0 ? parted : missing)) +
                          " is in the member mask of lane " + std::to_string(lane) +
                          " but does not execute the instruction with it";
  if (parted == 0) fault(FaultKind::barrier_not_reached, warp, instruction, lane, who);
  fault(FaultKind::divergence_not_supported, warp, instruction, lane,
        who + ": it is on another side of a branch, and in the emulator lanes meet only after the branch");
}

}  // namespace sparsekiln::emulator
