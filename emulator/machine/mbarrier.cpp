#include "emulator/machine/mbarrier.h"

#include <utility>

#include "emulator/machine/async_proxy.h"
#include "emulator/machine/block.h"
#include "emulator/machine/memory.h"
#include "emulator/machine/report.h"
#include "emulator/machine/warp.h"

namespace sparsekiln::emulator {
namespace {

std::string address_of(std::uint32_t offset) { return hex(offset + kSharedBase); }

Mbarrier& find(const Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place) {
  const auto found = place.block->mbarriers.find(place.offset);
  if (found == place.block->mbarriers.end())
    fault(FaultKind::invalid_operation, warp, instruction, lane,
          "no mbarrier was initialized at " + address_of(place.offset));
  return found->second;
}

/// A completed phase: what ended it comes before what those do who test it.
void advance_if_complete(Block& of, Mbarrier& mbarrier) {
  if (mbarrier.pending != 0 || mbarrier.transactions != 0 || mbarrier.expected == 0) return;
  ++mbarrier.phase;
  mbarrier.pending = mbarrier.expected;
  mbarrier.arrived_before = std::exchange(mbarrier.arrived, 0);
  auto copies = std::make_shared<Knowledge>();
  copies->learn(of.index, mbarrier.slot, 0, mbarrier.phase);
  mbarrier.completed = mbarrier.gathered;
  mbarrier.completed.join({.plain = copies});
  mbarrier.gathered = {};
  ++of.progress;
  const std::uint32_t woken = mbarrier.waiting;
  if (woken == 0) return;
  for (auto& [offset, other] : of.mbarriers) other.waiting &= ~woken;
  of.wake(woken);
}

void add_transactions(const Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place,
                      std::int64_t bytes) {
  Mbarrier& mbarrier = find(warp, instruction, lane, place);
  mbarrier.transactions += bytes;
  if (mbarrier.transactions > kMostTransactions || mbarrier.transactions < -kMostTransactions)
    fault(FaultKind::invalid_operation, warp, instruction, lane,
          "the transaction count becomes " + std::to_string(mbarrier.transactions) +
              ", beyond 2^20 - 1, of the " + describe_mbarrier(place.offset, mbarrier));
  advance_if_complete(*place.block, mbarrier);
}

void acquire(Warp& warp, int lane, const Mbarrier& mbarrier, bool acquires) {
  if (acquires && checks_order(warp)) warp.block->order.acquire(warp.index, 1u << lane, mbarrier.completed);
}

std::string plural(std::int64_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

std::string describe_mbarrier(std::uint32_t offset, const Mbarrier& mbarrier) {
  return "mbarrier at " + hex(offset + kSharedBase) + ", whose phase " + std::to_string(mbarrier.phase) +
         " still needs " + plural(mbarrier.pending, "arrival") + " and " +
         plural(mbarrier.transactions, "byte");
}

void mbarrier_init(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place,
                   std::uint32_t count) {
  if (count == 0 || count > kMostArrivals)
    fault(FaultKind::invalid_operation, warp, instruction, lane,
          "an mbarrier for " + std::to_string(count) + " arrivals; 1 to 2^20 - 1 are possible");
  if (const auto found = place.block->mbarriers.find(place.offset);
      found != place.block->mbarriers.end() && found->second.waiting != 0)
    fault(FaultKind::invalid_operation, warp, instruction, lane,
          "initializes an mbarrier at which others wait");
  Mbarrier& mbarrier = place.block->mbarriers[place.offset];
  // Phases of an mbarrier that is made again count on: agents know of no time twice.
  const std::uint32_t phase = mbarrier.phase == 0 ? 0 : (mbarrier.phase + 2) & ~1u;
  mbarrier = {.expected = count,
              .pending = count,
              .phase = phase,
              .slot = agent_slot(*place.block, AgentKind::mbarrier, place.offset)};
  memory_changed(warp);
}

void mbarrier_invalidate(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place) {
  Mbarrier& mbarrier = find(warp, instruction, lane, place);
  if (mbarrier.waiting != 0 || mbarrier.transactions != 0)
    fault(FaultKind::invalid_operation, warp, instruction, lane,
          "invalidates a " + describe_mbarrier(place.offset, mbarrier));
  mbarrier.expected = 0;  // its phases count on if it is made again
  mbarrier.pending = 0;
}

void mbarrier_expect(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place,
                     std::int64_t bytes) {
  add_transactions(warp, instruction, lane, place, bytes);
}

void mbarrier_complete(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place,
                       std::int64_t bytes) {
  add_transactions(warp, instruction, lane, place, -bytes);
}

std::uint64_t mbarrier_arrive(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place,
                              const Arrival& arrival) {
  Mbarrier& mbarrier = find(warp, instruction, lane, place);
  if (arrival.count == 0 || arrival.count > mbarrier.pending)
    fault(FaultKind::invalid_operation, warp, instruction, lane,
          "arrives " + std::to_string(arrival.count) + " times at the " +
              describe_mbarrier(place.offset, mbarrier));
  const std::uint64_t state = mbarrier.phase | std::uint64_t{mbarrier.pending} << 32;
  mbarrier.pending -= arrival.count;
  if (place.block == warp.block) mbarrier.arrived |= 1u << warp.index;
  if (arrival.drops) mbarrier.expected -= arrival.count;
  if (!arrival.completes && mbarrier.pending == 0)
    fault(FaultKind::invalid_operation, warp, instruction, lane, ".noComplete completes a phase");
  if (arrival.releases && checks_order(warp))
    mbarrier.gathered.join(warp.block->order.release(warp.index, 1u << lane, warp.time));
  memory_changed(warp);
  advance_if_complete(*place.block, mbarrier);
  return state;
}

void mbarrier_await_one_more(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place) {
  ++find(warp, instruction, lane, place).pending;
}

bool mbarrier_test_state(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place,
                         std::uint64_t state, bool acquires) {
  const Mbarrier& mbarrier = find(warp, instruction, lane, place);
  const std::uint32_t behind = mbarrier.phase - static_cast<std::uint32_t>(state);
  if (behind > 1)
    fault(FaultKind::invalid_operation, warp, instruction, lane,
          "tests a state that is neither of the current phase nor of the one before it, of the " +
              describe_mbarrier(place.offset, mbarrier));
  if (behind == 1) acquire(warp, lane, mbarrier, acquires);
  return behind == 1;
}

bool mbarrier_test_parity(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place,
                          std::uint32_t parity, bool acquires) {
  const Mbarrier& mbarrier = find(warp, instruction, lane, place);
  // Compilers widen a parity with its sign, so hardware looks at the lowest bit alone.
  const bool complete = (mbarrier.phase & 1) != (parity & 1);
  if (complete) acquire(warp, lane, mbarrier, acquires);
  return complete;
}

void mbarrier_suspend(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place) {
  const std::uint32_t bit = 1u << warp.index;
  find(warp, instruction, lane, place).waiting |= bit;
  warp.state = WarpState::waiting;
  warp.block->ready &= ~bit;
  warp.pc = pc_of(warp, instruction);
}

std::uint32_t pending_of_state(std::uint64_t state) { return static_cast<std::uint32_t>(state >> 32); }

Agent mbarrier_agent(const Warp& warp, const Instruction& instruction, int lane, Block& of,
                     std::uint32_t offset) {
  const Mbarrier& mbarrier = find(warp, instruction, lane, {&of, offset});
  return {.block = of.index, .slot = mbarrier.slot, .time = mbarrier.phase + 1};
}

void complete_transactions(Block& of, std::uint32_t offset, std::uint32_t bytes) {
  const auto found = of.mbarriers.find(offset);
  if (found == of.mbarriers.end() || found->second.expected == 0)
    throw Fault(FaultKind::invalid_operation, "invalid operation: bytes arrive for an mbarrier at " +
                                                  address_of(offset) + " that is none any more");
  found->second.transactions -= bytes;
  ++of.progress;
  advance_if_complete(of, found->second);
}

}  // namespace sparsekiln::emulator
