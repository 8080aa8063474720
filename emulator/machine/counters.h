#pragma once

#include <cstdint>
#include <vector>

namespace sparsekiln::emulator {

/// What one instruction of a program did in a launch, over all warps. Exact: each depends on the program, its
/// inputs and the seed alone.
struct LineCounters {
  std::uint64_t executed = 0;           ///< warp instructions issued, also where the guard left no lane
  std::uint64_t global_requests = 0;    ///< warp instructions that touched global memory
  std::uint64_t global_sectors = 0;     ///< distinct 32-byte sectors, a request
  std::uint64_t global_bytes = 0;       ///< distinct bytes, a request
  std::uint64_t shared_wavefronts = 0;  ///< of 128 bytes from 32 banks of 4
  std::uint64_t shared_ideal = 0;       ///< wavefronts if no two rows met in a bank
  std::uint64_t tensor_operations = 0;  ///< multiplications and additions of mma
  std::uint64_t divergent = 0;          ///< branches that lanes of one warp left in two directions

  LineCounters& operator+=(const LineCounters& other) {
    executed += other.executed;
    global_requests += other.global_requests;
    global_sectors += other.global_sectors;
    global_bytes += other.global_bytes;
    shared_wavefronts += other.shared_wavefronts;
    shared_ideal += other.shared_ideal;
    tensor_operations += other.tensor_operations;
    divergent += other.divergent;
    return *this;
  }
};

/// Indexed by pc. Each host thread has its own; they are added when the launch ends.
using Counters = std::vector<LineCounters>;

}  // namespace sparsekiln::emulator
