#include <bit>
#include <string>

#include "emulator/machine/block.h"
#include "emulator/machine/warp.h"

/// setmaxnreg (PTX ISA 9.7.19.5).
namespace sparsekiln::emulator {
namespace {

std::uint32_t first_of_group(std::uint32_t warp) { return warp / kWarpgroupWarps * kWarpgroupWarps; }

[[noreturn]] void fail(const Warp& warp, const Instruction& instruction, const std::string& what) {
  fault(FaultKind::invalid_operation, warp, instruction, std::countr_zero(warp.active), what);
}

/// The warps of a warpgroup execute the same setmaxnreg, and each of them before one of them executes the
/// next.
void follow(const Warp& warp, const Instruction& instruction) {
  const Block& block = *warp.block;
  const std::uint32_t first = first_of_group(warp.index);
  if ((first + kWarpgroupWarps) * kLanes > block.grid.threads)
    fail(warp, instruction, "needs a whole warpgroup");
  const RegisterPool::OfWarp& mine = block.pool.warps[warp.index];
  for (std::uint32_t w = first; w < first + kWarpgroupWarps; ++w) {
    const RegisterPool::OfWarp& other = block.pool.warps[w];
    const std::string who = "warp " + std::to_string(w) + " of the block";
    if (other.executed < mine.executed)
      fail(warp, instruction,
           "follows a setmaxnreg that " + who + ", of the same warpgroup, has not executed");
    if (other.executed == mine.executed && block.warps[w].live == 0)
      fail(warp, instruction, "must be executed by all warps of a warpgroup, but " + who + " has ended");
    if (other.executed > mine.executed && other.pc != pc_of(warp, instruction))
      fail(warp, instruction,
           "the warps of a warpgroup must execute the same setmaxnreg, but " + who + " has executed " +
               describe_code(block.grid.program, other.pc));
  }
}

/// Gives warps that wait what they want, as long as there is enough.
void grant(Block& block) {
  for (std::uint32_t w = 0; w < block.grid.warps; ++w) {
    RegisterPool::OfWarp& registers = block.pool.warps[w];
    if (registers.wants == 0 || registers.wants - registers.has > block.pool.free) continue;
    block.pool.free -= registers.wants - registers.has;
    registers.has = registers.wants;
    registers.wants = 0;
    ++block.progress;
    if (block.warps[w].state == WarpState::waiting) block.wake(1u << w);
  }
}

std::string listed(const Block& block) {
  std::string text;
  for (std::uint32_t w = 0; w < block.grid.warps; w += kWarpgroupWarps)
    text += (w == 0 ? "" : ", ") + std::to_string(block.pool.warps[w].has) + " in warpgroup " +
            std::to_string(w / kWarpgroupWarps);
  return text;
}

}  // namespace

void set_registers(Warp& warp, const Instruction& instruction, std::uint32_t count, bool increases) {
  Block& block = *warp.block;
  if (block.pool.warps.empty()) return;
  RegisterPool::OfWarp& registers = block.pool.warps[warp.index];
  // Compilers leave a second one after another, for what a warp has already, without a barrier between them.
  if (registers.has == count && registers.executed != 0) return;
  follow(warp, instruction);
  if (increases ? count < registers.has : count > registers.has)
    fail(warp, instruction,
         "asks for " + std::to_string(count) + " registers a thread, " + (increases ? "fewer" : "more") +
             " than the " + std::to_string(registers.has) + " that the warp has");
  ++registers.executed;
  registers.pc = pc_of(warp, instruction);
  if (increases) {
    registers.wants = count;
  } else {
    block.pool.free += registers.has - count;
    registers.has = count;
  }
  grant(block);
  if (registers.wants == 0) return;
  warp.state = WarpState::waiting;
  block.ready &= ~(1u << warp.index);
}

void end_registers(const Warp& warp) {
  const Block& block = *warp.block;
  if (block.pool.warps.empty()) return;
  const std::uint32_t first = first_of_group(warp.index);
  for (std::uint32_t w = first; w < first + kWarpgroupWarps && w < block.grid.warps; ++w) {
    const RegisterPool::OfWarp& other = block.pool.warps[w];
    if (other.executed > block.pool.warps[warp.index].executed)
      fault(FaultKind::invalid_operation, block.warps[w], block.grid.program.code[other.pc], 0,
            "must be executed by all warps of a warpgroup, but warp " + std::to_string(warp.index) +
                " of the block has ended without it");
  }
}

void report_registers(const Block& block) {
  for (std::uint32_t w = 0; w < block.pool.warps.size(); ++w) {
    const RegisterPool::OfWarp& registers = block.pool.warps[w];
    if (registers.wants == 0) continue;
    fault(FaultKind::deadlock, block.warps[w], block.grid.program.code[registers.pc],
          std::countr_zero(block.warps[w].active),
          "warpgroup " + std::to_string(w / kWarpgroupWarps) + " waits for " +
              std::to_string(registers.wants - registers.has) + " more registers a thread in warp " +
              std::to_string(w) + " of the block, to have " + std::to_string(registers.wants) +
              ", but the pool has " + std::to_string(block.pool.free) +
              " of one warp, and nothing returns any (" + listed(block) + ")");
  }
}

}  // namespace sparsekiln::emulator
