#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emulator/machine/counters.h"
#include "emulator/machine/launch_request.h"
#include "emulator/machine/memory.h"
#include "emulator/machine/order.h"
#include "emulator/program/program.h"

namespace sparsekiln::emulator {

/// What all blocks of a launch share.
struct Grid {
  explicit Grid(const LaunchRequest& launch);
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;
  ~Grid();

  const LaunchRequest& request;
  const Program& program;
  Checks checks;
  std::uint32_t stamp;  ///< of this launch in the shadows of global memory; never 0
  std::uint32_t blocks;
  std::uint32_t threads;  ///< a block
  std::uint32_t warps;    ///< a block
  std::uint32_t shared_bytes;
  std::uint32_t local_bytes;        ///< a thread, in whole cells
  std::vector<Allocation*> memory;  ///< by address
  SyncPlaces places;                ///< of global memory; used in turns alone
  std::uint64_t progress = 0;       ///< changes of memory and the like, by all blocks; see Block::progress

  /// Lanes that a warp of a block begins with.
  [[nodiscard]] Mask lanes_of(std::uint32_t warp) const {
    const std::uint32_t lanes = threads - warp * kLanes;
    return lanes >= kLanes ? kAllLanes : (1u << lanes) - 1;
  }
  [[nodiscard]] bool alone() const { return blocks == 1; }
  /// Blocks of a cluster, and whether there is more than one.
  [[nodiscard]] std::uint32_t cluster_size() const {
    return request.cluster[0] * request.cluster[1] * request.cluster[2];
  }
  [[nodiscard]] bool clustered() const { return cluster_size() > 1; }
  /// The number of the block with a rank in a cluster, by its number; x, y, z of the cluster, and of the
  /// block in it.
  [[nodiscard]] std::uint32_t block_of(std::uint32_t cluster, std::uint32_t rank) const;
  void cluster_place(std::uint32_t block, std::uint32_t (&cluster)[3], std::uint32_t (&within)[3]) const;
  /// The allocation that holds `address`, constant or not; null where none does.
  [[nodiscard]] Allocation* find(std::uint64_t address) const;
  /// ", 12 bytes after the allocation of 4096 bytes at 0x…": what is near an address that is not in any
  /// allocation of the space.
  [[nodiscard]] std::string whereabouts(std::uint64_t address, bool constant) const;
  /// x, y, z of a block by its number, of a thread by its number in the block.
  void block_place(std::uint32_t block, std::uint32_t (&place)[3]) const;
  void thread_place(std::uint32_t thread, std::uint32_t (&place)[3]) const;
};

/// What one host thread of a launch has of its own.
struct Worker {
  explicit Worker(const Program& program)
      : executed(program.code.size()), counters(program.code.size()), found(program.code.size()) {}

  std::vector<std::uint64_t> executed;  ///< by pc
  Counters counters;                    ///< by pc; but for `executed`
  std::vector<Allocation*> found;       ///< by pc: the allocation that the instruction met last
};

}  // namespace sparsekiln::emulator
