#include "emulator/machine/traffic.h"

#include <algorithm>
#include <bit>

namespace sparsekiln::emulator {
namespace {

constexpr std::uint32_t kSectorBytes = 32;

/// A set of up to 32 sectors, each with the bytes of it that are needed.
class Sectors {
 public:
  void add(std::uint64_t address, int bytes) {
    const std::uint64_t sector = address / kSectorBytes;
    const auto mask = static_cast<std::uint32_t>(((std::uint64_t{1} << bytes) - 1) << address % kSectorBytes);
    std::uint32_t slot = static_cast<std::uint32_t>(sector * 0x9e3779b97f4a7c15u >> 58);
    while ((used_ >> slot & 1) != 0 && sectors_[slot] != sector) slot = (slot + 1) % kSlots;
    if ((used_ >> slot & 1) == 0) {
      used_ |= std::uint64_t{1} << slot;
      sectors_[slot] = sector;
      bytes_[slot] = 0;
    }
    bytes_[slot] |= mask;
  }
  [[nodiscard]] std::uint32_t sectors() const { return static_cast<std::uint32_t>(std::popcount(used_)); }
  [[nodiscard]] std::uint32_t bytes() const {
    std::uint32_t sum = 0;
    for (std::uint64_t left = used_; left != 0; left &= left - 1)
      sum += static_cast<std::uint32_t>(std::popcount(bytes_[std::countr_zero(left)]));
    return sum;
  }

 private:
  static constexpr std::uint32_t kSlots = 64;
  std::uint64_t used_ = 0;
  std::uint64_t sectors_[kSlots];
  std::uint32_t bytes_[kSlots];
};

bool contiguous(int bytes, const std::uint64_t* addresses) {
  std::uint64_t differs = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    differs |= addresses[lane] ^ (addresses[0] + static_cast<std::uint64_t>(lane) * bytes);
  return differs == 0;
}

/// One part of a request: lanes that pass together. Units are what one lane needs: 4 bytes (a bank; less than
/// that needs a bank as well), 8 or 16.
struct Part {
  std::uint32_t wavefronts = 0;
  std::uint32_t distinct = 0;  ///< units
};

Part count_part(Mask lanes, std::uint32_t groups, std::uint32_t unit_shift, const std::uint64_t* addresses) {
  std::uint32_t first[32];   // unit that a group of banks is asked for
  std::uint32_t others[32];  // further distinct ones, kept as pairs of a group
  std::uint32_t other_count = 0;
  std::uint8_t depth[32];
  std::uint32_t seen = 0;
  Part part;
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto unit = static_cast<std::uint32_t>(addresses[std::countr_zero(lanes)] >> unit_shift);
    const std::uint32_t group = unit % groups;
    if ((seen >> group & 1) == 0) {
      seen |= 1u << group;
      first[group] = unit;
      depth[group] = 1;
      ++part.distinct;
      part.wavefronts = std::max(part.wavefronts, 1u);
    } else if (first[group] != unit &&
               std::find(others, others + other_count, unit) == others + other_count) {
      others[other_count++] = unit;
      part.wavefronts = std::max<std::uint32_t>(part.wavefronts, ++depth[group]);
      ++part.distinct;
    }
  }
  return part;
}

/// Distinct bytes of lanes that need less than a bank's word.
std::uint32_t distinct_narrow(Mask lanes, const std::uint64_t* addresses, int bytes) {
  Sectors sectors;
  for (; lanes != 0; lanes &= lanes - 1) sectors.add(addresses[std::countr_zero(lanes)], bytes);
  return sectors.bytes();
}

}  // namespace

void count_global(LineCounters& counters, Mask mask, int bytes, const std::uint64_t* addresses) {
  ++counters.global_requests;
  if (mask == kAllLanes && contiguous(bytes, addresses)) {
    const std::uint64_t size = std::uint64_t{kLanes} * bytes;
    counters.global_sectors += (addresses[0] + size - 1) / kSectorBytes - addresses[0] / kSectorBytes + 1;
    counters.global_bytes += size;
    return;
  }
  Sectors sectors;
  for (; mask != 0; mask &= mask - 1) sectors.add(addresses[std::countr_zero(mask)], bytes);
  counters.global_sectors += sectors.sectors();
  counters.global_bytes += sectors.bytes();
}

void count_global_range(LineCounters& counters, std::uint64_t address, std::uint32_t bytes) {
  if (bytes == 0) return;
  counters.global_sectors += (address + bytes - 1) / kSectorBytes - address / kSectorBytes + 1;
  counters.global_bytes += bytes;
}

void count_shared_range(LineCounters& counters, std::uint32_t bytes) {
  counters.shared_wavefronts += (bytes + 127) / 128;
  counters.shared_ideal += (bytes + 127) / 128;
}

void count_shared(LineCounters& counters, Mask mask, int bytes, const std::uint64_t* addresses) {
  const std::uint32_t unit = static_cast<std::uint32_t>(std::max(bytes, 4));
  const std::uint32_t groups = 128 / unit;
  const Mask together = groups == 32 ? kAllLanes : (1u << groups) - 1;
  for (std::uint32_t lane = 0; lane < kLanes; lane += groups) {
    const Mask lanes = mask & together << lane;
    if (lanes == 0) continue;
    const Part part =
        count_part(lanes, groups, static_cast<std::uint32_t>(std::countr_zero(unit)), addresses);
    const std::uint32_t needed = bytes < 4 ? distinct_narrow(lanes, addresses, bytes) : part.distinct * unit;
    counters.shared_wavefronts += part.wavefronts;
    counters.shared_ideal += (needed + 127) / 128;
  }
}

}  // namespace sparsekiln::emulator
