#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "emulator/machine/barrier_state.h"
#include "emulator/machine/counters.h"
#include "emulator/machine/memory_access.h"
#include "emulator/machine/report.h"
#include "emulator/machine/warp_state.h"

namespace sparsekiln::emulator {

/// The pc of the instruction that runs.
[[nodiscard]] std::uint32_t pc_of(const Warp& warp, const Instruction& instruction);
/// Who a lane is and what it runs, for reports.
[[nodiscard]] Site site_of(const Warp& warp, const Instruction& instruction, int lane);
[[nodiscard]] Site site_of(const Block& block, std::uint32_t block_number, std::uint32_t warp, int lane,
                           std::uint32_t pc);
[[noreturn]] void fault(FaultKind kind, const Warp& warp, const Instruction& instruction, int lane,
                        const std::string& what);

/// Fault of lanes of `missing`, alive, that the member mask of `lane` names and that do not execute the
/// instruction with it. Where they run on another way of a branch hardware would wait for them, which
/// lockstep cannot: then that is what it says.
[[noreturn]] void fault_missing(const Warp& warp, const Instruction& instruction, int lane, Mask missing);

/// The next number of the sequence that the seed gives this warp's block: for orders that the program leaves
/// open.
[[nodiscard]] std::uint32_t draw(Warp& warp);

/// What the instruction counts in this launch; `executed` is counted elsewhere.
[[nodiscard]] LineCounters& counters_of(Warp& warp, const Instruction& instruction);
/// Says that others may find changed what they wait for: memory, by an atomic. Other writes are known by
/// access().
void memory_changed(Warp& warp);
/// Whether races are checked: otherwise synchronize_through need not be called.
[[nodiscard]] bool checks_order(const Warp& warp);

/// Counts a branch that the active lanes leave in two directions (LineCounters::divergent).
void count_divergence(Warp& warp, const Instruction& instruction);

/// Counts multiplications and additions of a tensor core (LineCounters::tensor_operations).
void count_tensor(Warp& warp, const Instruction& instruction, std::uint64_t operations);

// ---- memory as handlers use it (machine/access.cpp) ----

/// Checks bounds, alignment, and what Checks ask for; counts; records for races. Gives the host address of
/// every lane's bytes in `host`, valid until the next call. Throws Fault. Call it before data is moved.
/// For a write it returns the lanes that write what an earlier lane of `mask` writes as well:
/// after_common_write is for them.
Mask access(Warp& warp, const Instruction& instruction, Mask mask, const Access& access,
            const std::uint64_t* addresses, std::byte** host);

/// After a write for which access() returned lanes: throws Fault where memory does not hold what `written`
/// (lane, `bytes` of them) says, since another lane of the instruction has written something else there.
void after_common_write(const Warp& warp, const Instruction& instruction, Mask common, int bytes,
                        std::byte* const* host, const std::byte (*written)[16]);

/// addresses[lane] = row of 64-bit base + immediate.
void lane_addresses(const Warp& warp, std::uint32_t base_row, std::int64_t offset, std::uint64_t* addresses);

/// The parameters of the launch: ld.param.
[[nodiscard]] const std::byte* parameters(const Warp& warp);

/// An asynchronous copy of a warp: for each lane of `mask`, `bytes` go to shared address to[lane], of which
/// the first source_bytes[lane] come from global address from[lane] and the rest are zero. It belongs to the
/// group that each lane commits next. Completes when the seed says, at the latest when the lane waits for it.
void copy_async(Warp& warp, const Instruction& instruction, Mask mask, int bytes, const std::uint64_t* to,
                const std::uint64_t* from, const std::uint32_t* source_bytes);
void commit_copies(Warp& warp, Mask mask);
/// Until at most `pending` of each lane's groups are on their way.
void wait_copies(Warp& warp, Mask mask, std::uint32_t pending);
/// Until no copy is on its way, committed or not.
void wait_all_copies(Warp& warp, Mask mask);

/// bar.sync, bar.arrive, and their likes: barrier `id` (0 to 15) of `threads` threads (0: the whole block). A
/// warp that waits is left in WarpState::waiting; `result`, where it is not kNoRow, gets bar.red's answer.
void barrier(Warp& warp, const Instruction& instruction, Mask mask, BarrierKind kind, std::uint32_t id,
             std::uint32_t threads, Mask predicate = 0, std::uint32_t result = kNoRow);
/// setmaxnreg: the warp has `count` registers a thread from now on. It may be left in WarpState::waiting.
void set_registers(Warp& warp, const Instruction& instruction, std::uint32_t count, bool increases);
/// bar.warp.sync: orders the accesses of the lanes of `members` among themselves.
void warp_barrier(Warp& warp, const Instruction& instruction, Mask mask, Mask members);

/// fence.acq_rel, fence.sc and membar.
void fence(Warp& warp, const Instruction& instruction, Mask mask, Scope scope);
/// fence.proxy.async: what the lanes know of also comes before the async proxy's accesses that follow.
void fence_proxy(Warp& warp, Mask mask);
/// griddepcontrol: until then a thread may not touch what earlier launches access (LaunchRequest); and from
/// then on launches after this one may begin.
void wait_for_launches(Warp& warp, Mask mask);
void let_dependents_begin(Warp& warp, Mask mask);

/// What an atomic or a strong access does to the order of accesses, called after access(), lane by lane in
/// the order in which they happen.
void synchronize_through(Warp& warp, const Instruction& instruction, int lane, AccessSpace space,
                         std::uint64_t address, AccessKind kind, Semantics semantics, Scope scope);

}  // namespace sparsekiln::emulator
