#pragma once

#include <cstdint>
#include <vector>

#include "emulator/machine/order.h"
#include "emulator/machine/warp_state.h"

namespace sparsekiln::emulator {

/// Where the memory of a block of the cluster begins in shared::cluster addresses: rank r has the addresses
/// from (r + 1) << kClusterShift on, each as many bytes after that as its shared::cta address says. Addresses
/// below are the block's own, as in the window of shared::cta, which the ISA has inside that of
/// shared::cluster (5.1.7).
inline constexpr std::uint32_t kClusterShift = 24;
/// The most blocks of a cluster that a launch may ask for without an attribute (CUDA C++ Programming Guide).
inline constexpr std::uint32_t kMostOfCluster = 8;

/// The barrier of a cluster (PTX ISA 9.7.13.4). A block that is a cluster of its own uses it by itself;
/// otherwise only who has a turn does.
struct ClusterBarrier {
  std::uint32_t phase = 0;  ///< how often it was complete
  bool someone_arrived = false;
  Known gathered;   ///< what those release who have arrived in this phase
  Known completed;  ///< of the phase before
};

/// The blocks that run together as a cluster, by rank.
struct Cluster {
  std::vector<Block*> blocks;
  ClusterBarrier barrier;

  void start() { barrier = {}; }
  /// Whether all blocks have ended, with all that they sent on its way.
  [[nodiscard]] bool ended() const;
  /// Completes the barrier where all threads that have not ended have arrived.
  void look_at_barrier();
};

}  // namespace sparsekiln::emulator
