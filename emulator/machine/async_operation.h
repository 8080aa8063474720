#pragma once

#include <cstdint>

#include "emulator/machine/touch.h"

namespace sparsekiln::emulator {

/// Who accesses, instead of a warp: `slot` of a block, which stands for whatever tells of the end (an
/// mbarrier, the bulk groups of a thread, the wgmma groups of a warpgroup), and `time`, which goes up with
/// each end that it tells of. Who knows of a time knows of all before.
struct Agent {
  std::uint32_t block = 0;  ///< number in the grid
  std::uint32_t slot = 0;   ///< from kFirstAgent on
  std::uint32_t time = 0;
};

/// Bytes of shared memory, from its start.
struct SharedRange {
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
};

/// An operation that is on its way.
class AsyncOperation {
 public:
  virtual ~AsyncOperation() = default;
  /// Moves the data and tells who waits. Throws Fault.
  virtual void land() = 0;
  /// Whether it reaches shared memory of other blocks of the cluster.
  [[nodiscard]] virtual bool reaches_peers() const { return false; }
  /// Whether it writes shared memory of its own block: then the block must not end before it has landed.
  [[nodiscard]] virtual bool fills_shared() const { return false; }
  std::uint32_t pc = 0;  ///< of its instruction
};

}  // namespace sparsekiln::emulator
