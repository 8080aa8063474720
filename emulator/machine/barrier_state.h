#pragma once

#include <array>
#include <cstdint>

#include "emulator/program/program.h"

namespace sparsekiln::emulator {

/// What a warp does at a barrier: waits, goes on, or waits for the answer of a reduction.
enum class BarrierKind : std::uint8_t { sync, arrive, reduce_and, reduce_or, reduce_popc };
inline constexpr std::uint32_t kNoRow = 0xffffffffu;

/// One barrier of a block (PTX ISA 9.7.13.1). Warps arrive as a whole, that is, with all of their threads
/// that have not ended. When the expected number has arrived, those that wait continue and the barrier is
/// empty again. A barrier of the whole block without a number of threads does not wait for warps that have
/// ended, and is complete when the last warp that it waits for ends (9.7.12, exit). A barrier with a number
/// of threads counts arrivals alone.
struct BarrierArrivals {
  std::uint32_t expected = 0;  ///< warps; 0: none has arrived
  std::uint32_t waiting = 0;   ///< one bit per warp
  std::uint32_t arrived = 0;   ///< warps that arrived without waiting
  std::uint32_t count = 0;     ///< of arrivals
  bool whole = false;          ///< for the whole block: no arrival gave a number of threads
  BarrierKind kind = BarrierKind::sync;
  std::uint32_t votes = 0;                ///< of a reduction: predicates that hold
  std::uint32_t voters = 0;               ///< and threads that said
  std::array<std::uint32_t, 32> times{};  ///< of each warp when it came
};

/// How a warp waits.
struct BarrierWait {
  std::uint32_t id = 0;
  std::uint32_t pc = 0;
  Mask lanes = 0;
  std::uint32_t result = kNoRow;
};

inline constexpr std::uint32_t kBarriers = 16;

/// The barriers of one block.
struct Barriers {
  std::array<BarrierArrivals, kBarriers> arrivals;
  std::array<BarrierWait, 32> waits;  ///< by warp; valid where its bit is in some `waiting`

  void start() { arrivals = {}; }
  /// Warps that wait anywhere.
  [[nodiscard]] std::uint32_t waiting() const {
    std::uint32_t all = 0;
    for (const BarrierArrivals& barrier : arrivals) all |= barrier.waiting;
    return all;
  }
};

}  // namespace sparsekiln::emulator
