#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "emulator/program/program.h"

namespace sparsekiln::emulator {

class BulkStore;

/// Bulk async-groups of the lanes of one warp (PTX ISA 9.7.9.25.1.1): copies out of shared memory that are
/// on their way.
struct WarpBulkGroups {
  struct Pending {
    int lane = 0;
    std::uint32_t group = 0;  ///< of the lane's, counted from its first
    BulkStore* store = nullptr;
  };
  std::vector<Pending> pending;  ///< in the order of issue
  std::array<std::uint32_t, kLanes> committed{};

  void start() {
    pending.clear();
    committed.fill(0);
  }
};

}  // namespace sparsekiln::emulator
