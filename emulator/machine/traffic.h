#pragma once

#include <cstdint>

#include "emulator/machine/counters.h"
#include "emulator/program/program.h"

namespace sparsekiln::emulator {

/// Adds a request of a warp for global memory: lanes of `mask` touch `bytes` (1 to 16, aligned) each. A
/// sector is 32 bytes, the least that moves between L2 and an SM.
void count_global(LineCounters& counters, Mask mask, int bytes, const std::uint64_t* addresses);

/// Adds the sectors and bytes of a contiguous range, of a request that is counted elsewhere.
void count_global_range(LineCounters& counters, std::uint64_t address, std::uint32_t bytes);

/// Adds contiguous bytes of shared memory, which no bank serves twice.
void count_shared_range(LineCounters& counters, std::uint32_t bytes);

/// Adds a request for shared memory: 32 banks of 4 bytes; accesses of 8 bytes pass in two halves of the warp,
/// those of 16 in four quarters. A wavefront serves each bank once; lanes that want the same word share it.
/// Ideal is what the distinct bytes of each part would need: ⌈bytes / 128⌉.
void count_shared(LineCounters& counters, Mask mask, int bytes, const std::uint64_t* addresses);

}  // namespace sparsekiln::emulator
