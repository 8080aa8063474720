#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/program/program.h"

namespace sparsekiln::emulator {

class Block;

/// Lanes that wait. Either they took the other way at a branch and run from `pc` to `join` once the active
/// lanes have arrived there, or (`pc` == `join`) they are all lanes of that branch, to go on together.
/// program/flow.cpp pushes and pops.
struct Divergence {
  std::uint32_t pc = 0;    ///< where they go on
  std::uint32_t join = 0;  ///< pc of the join instruction where they stop; kNoJoin: they run until they end
  Mask lanes = 0;
};
inline constexpr std::uint32_t kNoJoin = 0xffffffffu;

enum class WarpState : std::uint8_t {
  ready,
  waiting,     ///< at a barrier of the block or the cluster, or an mbarrier
  wants_turn,  ///< before an instruction that talks to other blocks
  ended,
};

/// How a warp takes part in the barrier of its cluster (machine/cluster.h).
struct ClusterWait {
  Mask arrived = 0;                  ///< lanes that have arrived in the current phase
  Mask owes = 0;                     ///< lanes that have arrived and not waited since
  bool suspended = false;            ///< it waits there
  std::uint32_t phase[kLanes] = {};  ///< in which each lane arrived last
};

/// 32 lanes in lockstep. A handler reads and writes rows of `registers`, may move `pc`, and may leave
/// `state`.
struct Warp {
  std::byte* registers = nullptr;
  std::uint32_t pc = 0;  ///< of the next instruction
  Mask active = 0;       ///< lanes that execute now
  Mask live = 0;         ///< lanes that have not ended
  WarpState state = WarpState::ready;
  Block* block = nullptr;
  std::uint32_t index = 0;  ///< of the warp in its block
  std::vector<Divergence> diverged;
  /// Counts what orders accesses: barriers, warp barriers, releases. See machine/order.h.
  std::uint32_t time = 1;
  Mask awaited = 0;  ///< lanes that have executed griddepcontrol.wait
  ClusterWait cluster;
  bool turn_granted = false;  ///< the next instruction may talk to other blocks

  template <class T>
  [[nodiscard]] T* row(std::uint32_t offset) const {
    return reinterpret_cast<T*>(registers + offset);
  }
  [[nodiscard]] Mask& predicate(std::uint32_t offset) const {
    return *reinterpret_cast<Mask*>(registers + offset);
  }
};

}  // namespace sparsekiln::emulator
