#pragma once

#include <cstdint>

#include "emulator/machine/mbarrier_state.h"
#include "emulator/machine/warp_state.h"

namespace sparsekiln::emulator {

/// Where the mbarrier of a lane is.
struct MbarrierPlace {
  Block* block = nullptr;
  std::uint32_t offset = 0;
};

/// What a thread does to an mbarrier at `place`, after its address was checked.
void mbarrier_init(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place,
                   std::uint32_t count);
void mbarrier_invalidate(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place);
void mbarrier_expect(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place,
                     std::int64_t bytes);
/// complete_tx by a thread, which only simulates a copy.
void mbarrier_complete(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place,
                       std::int64_t bytes);
/// An arrival of `count`; what the lane did comes before the end of the phase if it `releases`. Returns the
/// state of the phase that it arrived in. `drops`: the next phases expect as many fewer; `completes`: it may
/// be the last.
struct Arrival {
  std::uint32_t count = 1;
  bool releases = true;
  bool drops = false;
  bool completes = true;
};
std::uint64_t mbarrier_arrive(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place,
                              const Arrival& arrival);
/// One more arrival that the current phase waits for.
void mbarrier_await_one_more(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place);
/// Whether the phase of a state, or of a parity, is complete; then the lane comes after it if it `acquires`.
bool mbarrier_test_state(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place,
                         std::uint64_t state, bool acquires);
bool mbarrier_test_parity(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place,
                          std::uint32_t parity, bool acquires);
/// Lets the warp wait until something happens to the mbarrier; then it runs the instruction once more.
void mbarrier_suspend(Warp& warp, const Instruction& instruction, int lane, MbarrierPlace place);
/// Arrivals that a state says were pending.
[[nodiscard]] std::uint32_t pending_of_state(std::uint64_t state);

}  // namespace sparsekiln::emulator
