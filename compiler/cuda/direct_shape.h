#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/tables.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// The numbers of templates/spmm_direct.cuh that follow from a config.
struct DirectShape {
  std::int32_t threads = 0;       ///< a CTA
  std::int32_t ctas = 0;          ///< of a multiprocessor
  std::int32_t run = 0;           ///< neighbouring outputs of a thread where they are stored
  std::int32_t sums = 0;          ///< a thread
  std::int32_t registers = 0;     ///< that a thread needs, an estimate
  ChunkShape chunk;               ///< 64 bytes of k
  std::int64_t shared_bytes = 0;  ///< dynamic
};

/// The knob `panels` of variant direct. 1: a pass of the launch copies x to panels first, [in /
/// block.in][tile_n][block.in] for each batch tile, where what a block is multiplied with lies together.
/// Linear layers.
[[nodiscard]] inline bool has_panels(const Config& config) {
  return config.variant == Variant::direct && config.knobs[0] != 0;
}

/// Whether the CTAs that a multiprocessor is given (Config::split) have the registers, and one the shared
/// memory.
[[nodiscard]] bool direct_fits(const Spmm& problem, const Target& target, const Config& config);

/// Throws `invalid_argument`, with what would work, where the numbers do not go together.
[[nodiscard]] DirectShape direct_shape(const Spmm& problem, const Target& target, const Config& config);

}  // namespace sparsekiln::cuda
