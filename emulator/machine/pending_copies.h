#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/program/program.h"

namespace sparsekiln::emulator {

/// Asynchronous copies of one warp in one instruction, on their way (PTX ISA 9.7.9.25.3, cp.async).
struct PendingCopy {
  PendingCopy() {}    // NOLINT: leaves the arrays uninitialized
  Mask lanes = 0;     ///< lanes that have not waited for their copy
  bool late = false;  ///< its data move when they are waited for
  std::uint32_t pc = 0;
  std::uint32_t bytes = 0;
  std::array<std::uint32_t, kLanes> group;  ///< of each lane's, counted from its first
  std::array<std::uint32_t, kLanes> to;     ///< offset in the block's shared memory
  std::array<std::uint64_t, kLanes> from;   ///< global address
  std::array<std::uint32_t, kLanes> read;   ///< bytes that are read there, up to `bytes`
  std::uint64_t from_begin = 0;             ///< all that is read lies in [from_begin, from_end)
  std::uint64_t from_end = 0;
  std::array<std::array<std::byte, 16>, kLanes> data;
};

/// All that are on their way for one warp.
struct WarpCopies {
  std::vector<PendingCopy> pending;  ///< in the order of issue; those without lanes are done
  std::size_t first = 0;             ///< all before are done
  std::array<std::uint32_t, kLanes> committed{};

  void start() {
    pending.clear();
    first = 0;
    committed.fill(0);
  }
  /// Forgets what is done, as far as that is cheap.
  void tidy() {
    while (first < pending.size() && pending[first].lanes == 0) ++first;
    constexpr std::size_t kMostDone = 64;
    if (first < kMostDone && first < pending.size()) return;
    pending.erase(pending.begin(), pending.begin() + static_cast<std::ptrdiff_t>(first));
    first = 0;
  }
};

}  // namespace sparsekiln::emulator
