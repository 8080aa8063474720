#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/sddmm.h"

namespace sparsekiln::cuda {

/// Bytes of shared memory besides SddmmShape::shared_bytes: the pairs, see
/// templates/load_batch_rows.cuh.
inline constexpr std::int32_t kSddmmStaticShared = 256;

/// How a config computes a gradient of the weight. Of it, tile_n is the batch entries of a stage; rows the
/// blocks of a run, 1, 2, 4 or 8; tile_out, of variant simt alone, the outputs and the inputs of a thread, 4
/// or 8.
struct SddmmShape {
  std::int32_t threads = 0;
  std::int32_t warps_out = 1;  ///< of variant mma: over the outputs of a run,
  std::int32_t warps_in = 1;   ///< its inputs,
  std::int32_t warps_n = 1;    ///< and the k-steps of a stage
  std::int32_t sums = 0;       ///< of a thread
  std::int32_t shared_bytes = 0;
};

/// Throws `invalid_argument` where the config's numbers do not go together.
[[nodiscard]] SddmmShape sddmm_shape(const Sddmm& gradient, const Target& target, const Config& config);

}  // namespace sparsekiln::cuda
