#pragma once

#include <cstdint>

namespace sparsekiln {

/// The largest batch of any kernel, which `validate` and loading for CUDA enforce. CUDA code counts batch
/// entries in 32 bits, up to the end of the last tile: of 2^31 - 1 entries that would overflow.
inline constexpr std::int64_t kMostBatch = std::int64_t{1} << 30;

}  // namespace sparsekiln
