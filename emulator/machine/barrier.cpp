#include <bit>

#include "emulator/machine/block.h"
#include "emulator/machine/warp.h"

namespace sparsekiln::emulator {
namespace {

constexpr bool reduces(BarrierKind kind) { return kind != BarrierKind::sync && kind != BarrierKind::arrive; }

/// A thread that ran last before `pc` of its warp.
Site stands_at(const Block& block, const Warp& warp, int lane) {
  const std::uint32_t pc = warp.pc == 0 ? 0 : warp.pc - 1;
  return site_of(block, block.index, warp.index, lane, pc);
}

std::string where_missing(const Block& block, std::uint32_t w) {
  const Warp& warp = block.warps[w];
  const int lane = warp.live == 0 ? 0 : std::countr_zero(warp.live);
  const Site site = stands_at(block, warp, lane);
  const std::string who = describe_thread(site);
  if (warp.live == 0) return who + " has ended";
  if (warp.state == WarpState::waiting)
    return who + " waits at " + describe_code(*site.program, block.barriers.waits[w].pc);
  return who + " is at " + describe_code(*site.program, site.pc);
}

void answer(const Block& block, const BarrierArrivals& barrier, std::uint32_t w) {
  const BarrierWait& wait = block.barriers.waits[w];
  const Warp& warp = block.warps[w];
  if (barrier.kind == BarrierKind::reduce_popc) {
    auto* const row = warp.row<std::uint32_t>(wait.result);
    for (Mask left = wait.lanes; left != 0; left &= left - 1) row[std::countr_zero(left)] = barrier.votes;
    return;
  }
  const bool holds =
      barrier.kind == BarrierKind::reduce_or ? barrier.votes != 0 : barrier.votes == barrier.voters;
  Mask& row = warp.predicate(wait.result);
  row = holds ? row | wait.lanes : row & ~wait.lanes;
}

void complete(Block& block, BarrierArrivals& barrier) {
  const BarrierArrivals done = barrier;
  barrier = {};
  ++block.progress;
  if (block.grid.checks.races) {
    if (static_cast<std::uint32_t>(std::popcount(done.waiting)) == block.grid.warps)
      block.order.synchronize_block(block.times.data());
    else
      block.order.synchronize_warps(done.waiting, done.arrived, done.times.data(), block.times.data());
  }
  if (reduces(done.kind))
    for (std::uint32_t left = done.waiting; left != 0; left &= left - 1)
      answer(block, done, static_cast<std::uint32_t>(std::countr_zero(left)));
  block.wake(done.waiting);
}

/// Whether all warps that the barrier waits for have arrived.
bool is_complete(const Block& block, const BarrierArrivals& barrier) {
  return barrier.count ==
         (barrier.whole ? static_cast<std::uint32_t>(std::popcount(block.living)) : barrier.expected);
}

}  // namespace

void release_barriers(Block& block) {
  for (BarrierArrivals& barrier : block.barriers.arrivals)
    if (barrier.whole && barrier.count != 0 && is_complete(block, barrier)) complete(block, barrier);
}

void report_missing(const Block& block, std::uint32_t id) {
  const BarrierArrivals& barrier = block.barriers.arrivals[id];
  const auto waiter = static_cast<std::uint32_t>(std::countr_zero(barrier.waiting));
  std::uint32_t absent = ~(barrier.waiting | barrier.arrived);
  if (barrier.whole) absent &= block.living;
  auto missing = static_cast<std::uint32_t>(std::countr_zero(absent));
  // A warp that has ended is a better explanation than one that waits elsewhere.
  for (std::uint32_t w = 0; w < block.grid.warps; ++w)
    if ((absent >> w & 1) != 0 && block.warps[w].live == 0) missing = w;
  const std::string where =
      missing < block.grid.warps ? where_missing(block, missing) : "it expects more threads than there are";
  const BarrierWait& wait = block.barriers.waits[waiter];
  fault(FaultKind::barrier_not_reached, block.warps[waiter], block.grid.program.code[wait.pc],
        std::countr_zero(wait.lanes),
        "barrier " + std::to_string(id) +
            " will never be complete: " + std::to_string(barrier.count * kLanes) + " of " +
            std::to_string(barrier.expected * kLanes) + " threads are there, but " + where);
}

void barrier(Warp& warp, const Instruction& instruction, Mask mask, BarrierKind kind, std::uint32_t id,
             std::uint32_t threads, Mask predicate, std::uint32_t result) {
  Block& block = *warp.block;
  const int lane = std::countr_zero(mask);
  const auto invalid = [&](const std::string& why) {
    fault(FaultKind::invalid_operation, warp, instruction, lane, why);
  };
  if (id >= kBarriers) invalid("barrier " + std::to_string(id) + "; there are 16");
  if (threads % kLanes != 0)
    invalid("a barrier of " + std::to_string(threads) + " threads, no multiple of 32");
  if (mask != warp.live) {
    const int absent = std::countr_zero(warp.live & ~mask);
    const std::string who = describe_thread(site_of(warp, instruction, absent));
    fault(FaultKind::barrier_not_reached, warp, instruction, lane,
          "barrier " + std::to_string(id) + " is reached by part of a warp: " + who + " is not there");
  }
  const bool whole = threads == 0;
  const std::uint32_t expected = whole ? block.grid.warps : threads / kLanes;
  BarrierArrivals& barrier = block.barriers.arrivals[id];
  if (barrier.count == 0) {
    barrier.expected = expected;
    barrier.whole = whole;
    barrier.kind = kind;
  }
  if (barrier.expected != expected)
    invalid("barrier " + std::to_string(id) + " of " + std::to_string(expected * kLanes) +
            " threads, at which others wait as one of " + std::to_string(barrier.expected * kLanes));
  if (reduces(kind) != reduces(barrier.kind) || (reduces(kind) && kind != barrier.kind))
    invalid("barrier " + std::to_string(id) + " reduces for some and not, or otherwise, for others");
  const std::uint32_t bit = 1u << warp.index;
  ++block.progress;
  ++barrier.count;
  barrier.votes += static_cast<std::uint32_t>(std::popcount(predicate & mask));
  barrier.voters += static_cast<std::uint32_t>(std::popcount(mask));
  barrier.times[warp.index] = warp.time;
  if (kind == BarrierKind::arrive) {
    barrier.arrived |= bit;
    ++warp.time;  // what it does from here on is not what the others wait for
  } else {
    barrier.waiting |= bit;
    warp.state = WarpState::waiting;
    block.ready &= ~bit;
    block.barriers.waits[warp.index] = {
        .id = id, .pc = pc_of(warp, instruction), .lanes = mask, .result = result};
  }
  barrier.whole = barrier.whole && whole;
  if (is_complete(block, barrier)) complete(block, barrier);
}

void warp_barrier(Warp& warp, const Instruction& instruction, Mask mask, Mask members) {
  members &= warp.live;
  const Mask absent = members & ~mask;
  if (absent != 0)
    fault(FaultKind::barrier_not_reached, warp, instruction, std::countr_zero(mask),
          "barrier of a warp names lanes that are not there: " +
              describe_thread(site_of(warp, instruction, std::countr_zero(absent))));
  if (checks_order(warp))
    warp.block->order.synchronize_lanes(warp.index, members, members == warp.live, warp.time);
}

}  // namespace sparsekiln::emulator
