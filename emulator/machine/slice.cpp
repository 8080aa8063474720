
#include "emulator/machine/block.h"
#include "emulator/machine/warp.h"
#include "emulator/machine/wgmma.h"

namespace sparsekiln::emulator {

void run_slice(Warp& warp, const Instruction* code, std::uint64_t* executed, std::uint32_t budget) {
  const unsigned talks = warp.block->grid.clustered() ? kTalksToBlocks | kTalksToCluster : kTalksToBlocks;
  while (budget-- != 0) {
    const std::uint32_t pc = warp.pc++;
    const Instruction& instruction = code[pc];
    Mask mask = warp.active;
    if (instruction.guard != kNoGuard) mask &= warp.predicate(instruction.guard) ^ instruction.guard_flip;
    if ((instruction.traits & talks) != 0 && mask != 0 && !warp.turn_granted) [[unlikely]] {
      warp.pc = pc;
      warp.state = WarpState::wants_turn;
      return;
    }
    ++executed[pc];
    if (mask == 0) continue;
    if ((instruction.traits & kTouchesAsyncRegisters) != 0) [[unlikely]]
      touch_async_registers(warp, instruction, mask);
    instruction.run(warp, instruction, mask);
    if (warp.state != WarpState::ready) return;
  }
}

std::uint32_t pc_of(const Warp& warp, const Instruction& instruction) {
  return static_cast<std::uint32_t>(&instruction - warp.block->grid.program.code.data());
}

std::uint32_t draw(Warp& warp) { return static_cast<std::uint32_t>(warp.block->random.next() >> 32); }

LineCounters& counters_of(Warp& warp, const Instruction& instruction) {
  return warp.block->worker->counters[pc_of(warp, instruction)];
}

void count_divergence(Warp& warp, const Instruction& instruction) {
  ++counters_of(warp, instruction).divergent;
}

void count_tensor(Warp& warp, const Instruction& instruction, std::uint64_t operations) {
  counters_of(warp, instruction).tensor_operations += operations;
}

void memory_changed(Warp& warp) { ++warp.block->progress; }

bool checks_order(const Warp& warp) { return warp.block->grid.checks.races; }

void lane_addresses(const Warp& warp, std::uint32_t base_row, std::int64_t offset, std::uint64_t* addresses) {
  const auto* base = warp.row<std::uint64_t>(base_row);
  for (int lane = 0; lane < kLanes; ++lane) addresses[lane] = base[lane] + static_cast<std::uint64_t>(offset);
}

const std::byte* parameters(const Warp& warp) { return warp.block->grid.request.parameters.data(); }

}  // namespace sparsekiln::emulator
