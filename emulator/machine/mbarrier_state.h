#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "emulator/machine/order.h"

namespace sparsekiln::emulator {

/// The state of an mbarrier object (PTX ISA 9.7.13.15). It is kept beside shared memory, at the offset of the
/// object there.
struct Mbarrier {
  std::uint32_t expected = 0;  ///< arrivals of the next phases
  std::uint32_t pending = 0;   ///< arrivals that the current phase still needs
  std::int64_t transactions =
      0;                      ///< bytes that it still needs; below 0 where they come before they are expected
  std::uint32_t phase = 0;    ///< how many are complete
  std::uint32_t slot = 0;     ///< as an Agent
  Known gathered;             ///< what arrivals of the current phase released
  Known completed;            ///< of the phase before
  std::uint32_t waiting = 0;  ///< warps of its block, one bit each
  std::uint32_t arrived = 0;  ///< those that arrived in the current phase
  std::uint32_t arrived_before = 0;  ///< in the phase before
};
/// Limits of its counts (9.7.13.15.2, 9.7.13.15.5).
inline constexpr std::uint32_t kMostArrivals = (1u << 20) - 1;
inline constexpr std::int64_t kMostTransactions = (1 << 20) - 1;

/// The mbarriers of a block, by offset.
using Mbarriers = std::map<std::uint32_t, Mbarrier>;

/// "mbarrier at 0x…, whose phase 3 still needs 1 arrival and 128 bytes"
[[nodiscard]] std::string describe_mbarrier(std::uint32_t offset, const Mbarrier& mbarrier);

}  // namespace sparsekiln::emulator
