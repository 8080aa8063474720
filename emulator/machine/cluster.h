#pragma once

#include <cstdint>

#include "emulator/machine/cluster_state.h"

namespace sparsekiln::emulator {

/// barrier.cluster.arrive and .wait. A warp that waits is left in WarpState::waiting, and runs the
/// instruction once more when it is woken.
void cluster_arrive(Warp& warp, const Instruction& instruction, Mask mask, bool releases);
void cluster_wait(Warp& warp, const Instruction& instruction, Mask mask);

/// The block of this warp's cluster whose shared memory a shared::cluster address is in, and the offset there
///. Faults for a lane whose address is in none, or
/// in that of a block which has ended.
struct SharedPlace {
  Block* block = nullptr;
  std::uint32_t offset = 0;
};
[[nodiscard]] SharedPlace shared_place(const Warp& warp, const Instruction& instruction, int lane,
                                       std::uint32_t address);
/// The block of the warp's cluster with a rank; null where the cluster has none.
[[nodiscard]] Block* block_of_rank(const Warp& warp, std::uint32_t rank);
[[nodiscard]] std::uint32_t rank_of(const Warp& warp);

}  // namespace sparsekiln::emulator
