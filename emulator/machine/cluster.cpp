#include "emulator/machine/cluster.h"

#include <algorithm>
#include <bit>

#include "emulator/machine/block.h"
#include "emulator/machine/warp.h"

namespace sparsekiln::emulator {

bool Cluster::ended() const {
  return std::all_of(blocks.begin(), blocks.end(), [](const Block* block) { return block->finished(); });
}

void Cluster::look_at_barrier() {
  if (!barrier.someone_arrived) return;
  for (const Block* block : blocks)
    for (const Warp& warp : block->warps)
      if ((warp.live & ~warp.cluster.arrived) != 0) return;
  ++barrier.phase;
  barrier.someone_arrived = false;
  barrier.completed = barrier.gathered;
  barrier.gathered = {};
  for (Block* block : blocks) {
    std::uint32_t woken = 0;
    for (Warp& warp : block->warps) {
      warp.cluster.arrived = 0;
      if (warp.cluster.suspended) woken |= 1u << warp.index;
      warp.cluster.suspended = false;
    }
    block->wake(woken);
    ++block->progress;
  }
}

void cluster_arrive(Warp& warp, const Instruction& instruction, Mask mask, bool releases) {
  Cluster& cluster = *warp.block->cluster;
  if (const Mask again = mask & warp.cluster.owes; again != 0)
    fault(FaultKind::invalid_operation, warp, instruction, std::countr_zero(again),
          "arrives at the barrier of the cluster once more without a wait");
  warp.cluster.owes |= mask;
  warp.cluster.arrived |= mask;
  for (Mask left = mask; left != 0; left &= left - 1)
    warp.cluster.phase[std::countr_zero(left)] = cluster.barrier.phase;
  cluster.barrier.someone_arrived = true;
  if (checks_order(warp)) {
    BlockOrder& order = warp.block->order;
    cluster.barrier.gathered.join(releases ? order.release(warp.index, mask, warp.time)
                                           : order.fenced(warp.index, mask));
  }
  memory_changed(warp);
  cluster.look_at_barrier();
}

void cluster_wait(Warp& warp, const Instruction& instruction, Mask mask) {
  const ClusterBarrier& barrier = warp.block->cluster->barrier;
  if (const Mask stranger = mask & ~warp.cluster.owes; stranger != 0)
    fault(FaultKind::invalid_operation, warp, instruction, std::countr_zero(stranger),
          "waits at the barrier of the cluster, where it has not arrived");
  bool complete = true;
  for (Mask left = mask; left != 0; left &= left - 1)
    complete = complete && warp.cluster.phase[std::countr_zero(left)] != barrier.phase;
  if (complete) {
    warp.cluster.owes &= ~mask;
    if (checks_order(warp)) warp.block->order.acquire(warp.index, mask, barrier.completed);
    return;
  }
  warp.cluster.suspended = true;
  warp.state = WarpState::waiting;
  warp.block->ready &= ~(1u << warp.index);
  warp.pc = pc_of(warp, instruction);
}

SharedPlace shared_place(const Warp& warp, const Instruction& instruction, int lane, std::uint32_t address) {
  const std::uint32_t window = address >> kClusterShift;
  Block* const block = window == 0 ? warp.block : block_of_rank(warp, window - 1);
  const std::uint32_t within = address & ((1u << kClusterShift) - 1);
  if (block == nullptr || within < kSharedBase)
    fault(FaultKind::out_of_bounds, warp, instruction, lane,
          "accesses " + hex(address) + ", which is shared memory of no block of the cluster");
  if (block != warp.block && block->ended())
    fault(FaultKind::out_of_bounds, warp, instruction, lane,
          "accesses shared memory of a block of its cluster that has ended, at " + hex(address));
  return {block, within - kSharedBase};
}

Block* block_of_rank(const Warp& warp, std::uint32_t rank) {
  const std::vector<Block*>& blocks = warp.block->cluster->blocks;
  return rank < blocks.size() ? blocks[rank] : nullptr;
}

std::uint32_t rank_of(const Warp& warp) { return warp.block->rank; }

}  // namespace sparsekiln::emulator
