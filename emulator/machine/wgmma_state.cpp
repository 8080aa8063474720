#include "emulator/machine/wgmma_state.h"

namespace sparsekiln::emulator {

void BlockMatrix::start(std::uint32_t warps_of_block, std::uint32_t registers) {
  if (registers == 0) return;
  warps.resize(warps_of_block);
  groups.assign((warps_of_block + kWarpgroupWarps - 1) / kWarpgroupWarps, {});
  for (WarpMatrix& warp : warps) {
    warp.queued.clear();
    warp.fences = warp.committed = warp.awaited = 0;
    warp.suspended = false;
    warp.registers.assign(registers, {});
  }
}

}  // namespace sparsekiln::emulator
