#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/tables.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// Shared memory beside that of the stages, static: the flag of the combine, and what aligns the rest.
inline constexpr std::int64_t kMmaStaticShared = 128;

/// The most sums of a thread.
inline constexpr std::int32_t kMostMmaSums = 128;

/// The numbers of templates/spmm_mma.cuh that follow from a config.
struct MmaShape {
  std::int32_t threads = 0;       ///< a CTA
  std::int32_t warps_out = 0;     ///< warps side by side along the outputs of a block row …
  std::int32_t warps_n = 0;       ///< … and along the batch rows of a tile
  std::int32_t chunk_units = 0;   ///< 16 bytes of k each, of one stage's rows: 2, 4 or 8
  ChunkShape chunk;               ///< the same, as the schedule's tables have it
  std::int32_t interleave = 0;    ///< neighbouring outputs of a thread, 16 bytes at most
  std::int32_t sums = 0;          ///< a thread
  std::int64_t shared_bytes = 0;  ///< of all stages, dynamic
  bool async_copy = false;        ///< cp.async: sm_80 and later
};

/// Throws `invalid_argument`, with what would work, where the numbers do not go together.
[[nodiscard]] MmaShape mma_shape(const Spmm& problem, const Target& target, const Config& config);

}  // namespace sparsekiln::cuda
