#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "emulator/machine/async_operation.h"
#include "emulator/machine/cluster.h"
#include "emulator/machine/memory_access.h"
#include "emulator/machine/warp_state.h"

/// What runs beside the threads of a block and accesses memory through the async proxy (PTX ISA 8.6): bulk
/// copies and wgmma. To the order of accesses it is an Agent, of whose accesses a thread knows once it has
/// waited for them.
namespace sparsekiln::emulator {

/// What an agent stands for. One number of 32 bits tells those of a kind apart.
enum class AgentKind : std::uint8_t { mbarrier, bulk_reads, bulk_writes, warpgroup_matrix };
/// The slot of `of` that stands for this: the same whenever it is asked for. Past kLastAgent, slots are
/// shared.
[[nodiscard]] std::uint32_t agent_slot(Block& of, AgentKind kind, std::uint32_t which);

/// An asynchronous operation when it is issued: by whom, and who will have done its accesses.
struct AsyncIssue {
  Warp& warp;
  const Instruction& instruction;
  int lane = 0;
  Agent agent;
};

/// Checks and records, when an operation is issued, that it reads or writes bytes [offset, offset + bytes) of
/// the shared memory of `of`: bounds, unwritten bytes, and order with what happened before the issue, among
/// it generic writes without a proxy fence. `offset` is from the start of the memory, not from kSharedBase.
/// Throws Fault. A write counts as written from now on.
void touch_shared(const AsyncIssue& issue, Block& of, std::uint32_t offset, std::uint32_t bytes,
                  AccessKind kind);
/// The overload for several ranges.
void touch_shared(const AsyncIssue& issue, Block& of, std::span<const SharedRange> ranges, AccessKind kind);
/// The equivalent for global memory. Returns the host's address of the first byte. All bytes are of one
/// allocation, or it faults.
std::byte* touch_global(const AsyncIssue& issue, std::uint64_t address, std::uint32_t bytes, AccessKind kind);

/// From now on what lanes of `lanes` do comes after what the agent did: they have waited for it.
void learn_of(Warp& warp, Mask lanes, const Agent& agent);

/// Sends an operation on its way: the seed says when it lands, at the earliest before this returns, at the
/// latest when nothing else can run. Pointers stay valid until it has landed.
void send(Warp& warp, std::unique_ptr<AsyncOperation> operation);
/// Lets it land now. Does nothing if it has landed.
void land_now(Block& block, const AsyncOperation* operation);

/// The mbarrier at an offset of shared memory, as bulk copies see it. Faults where there is none.
/// Who has done the accesses of an operation which signals it.
[[nodiscard]] Agent mbarrier_agent(const Warp& warp, const Instruction& instruction, int lane, Block& of,
                                   std::uint32_t offset);
/// complete_tx: `bytes` have arrived. May complete its phase and wake who waits.
void complete_transactions(Block& of, std::uint32_t offset, std::uint32_t bytes);

}  // namespace sparsekiln::emulator
