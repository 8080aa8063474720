#pragma once

#include <cstdint>
#include <string_view>

namespace sparsekiln {

/// What bounds the time of a launch.
enum class Bound : std::uint8_t {
  memory,        ///< bytes that come from memory once
  cache,         ///< bytes that come from L2, or from the last-level cache
  arithmetic,    ///< products
  instructions,  ///< everything else that is issued
  latency,       ///< beginning, filling the pipeline, waiting for one another
};
[[nodiscard]] std::string_view name(Bound bound);

/// What a config is expected to take.
struct Prediction {
  double us = 0;  ///< of a launch
  Bound bound = Bound::memory;
  double memory_bytes = 0;  ///< from and to memory, what is read again for want of cache too; on CUDA targets
  double cache_bytes = 0;   ///< into multiprocessors and out of them; on CUDA targets
  double instructions = 0;  ///< of warps; on CUDA targets
  double products = 0;      ///< multiplications, those of zeros in merged tiles too; on CUDA targets
};

}  // namespace sparsekiln
