#pragma once

#include <bit>
#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/sddmm.h"

namespace sparsekiln::cuda {

inline constexpr std::int32_t kMostSddmmChunk = 128;  ///< batch rows of a stage
/// A batch row of x in a stage, bytes: a unit for each lane of a warp.
inline constexpr std::int32_t kMostSddmmRowBytes = 512;
inline constexpr std::int32_t kMostSddmmWarps = 16;

/// How a config computes a gradient of the weight. Its tile_n is the batch rows of a stage, and its rows
/// the blocks of a run, 1, 2, 4 or 8; what tile_out is each family says.
struct SddmmShape {
  std::int32_t threads = 0;
  std::int32_t warps_out = 1;  ///< on tensor cores: over the outputs of a run,
  std::int32_t warps_in = 1;   ///< its inputs,
  std::int32_t warps_n = 1;    ///< and the k-steps of a stage
  std::int32_t sums = 0;       ///< of a thread
  std::int32_t shared_bytes = 0;
  /// The pairs in shared memory besides, see templates/load_batch_rows.cuh. 0 where the accumulators of a run
  /// take all that a CTA may have, as those of 128 × 128 on sm_75.
  std::int32_t static_bytes = 0;
};

/// How a family shares a run out: fills in the sums and, where it has them, the warps of a shape that has its
/// threads. Throws `invalid_argument`.
using ShareOut = void (*)(SddmmShape&, const Sddmm&, const Config&);

/// Throws `invalid_argument` where the config's numbers do not go together.
[[nodiscard]] SddmmShape sddmm_shape(const Sddmm& gradient, const Target& target, const Config& config,
                                     ShareOut share_out);

/// The inputs of a run.
[[nodiscard]] inline std::int32_t run_inputs(const Sddmm& gradient, const Config& config) {
  return config.rows * gradient.block.in;
}

[[nodiscard]] inline bool is_power_of_two(std::int32_t value, std::int32_t least, std::int32_t most) {
  return value >= least && value <= most && std::has_single_bit(static_cast<std::uint32_t>(value));
}

}  // namespace sparsekiln::cuda
