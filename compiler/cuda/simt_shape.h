#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// Shared memory beside that of the stages: the flag of the combine, and what aligns it.
inline constexpr std::int64_t kSimtFlagBytes = 16;
/// The static shared memory that a CTA may have on every architecture (CUDA C++ Programming Guide, compute
/// capabilities), less the flag of the combine.
inline constexpr std::int64_t kSharedLimit = 48 * 1024 - kSimtFlagBytes;

/// The numbers of templates/spmm_simt.cuh that follow from a config.
struct SimtShape {
  std::int32_t threads = 0;       ///< a CTA
  std::int32_t thread_n = 0;      ///< batch rows a thread; it holds tile_out × thread_n sums
  std::int32_t chunk = 0;         ///< k's in one stage
  std::int64_t shared_bytes = 0;  ///< of all stages, static
  bool async_copy = false;        ///< cp.async: sm_80 and later
};

/// Whether threads share out an output tile: each has config.tile_out outputs, and as many batch rows as
/// others.
[[nodiscard]] bool simt_shares_out(const Spmm& problem, const Config& config);

/// Throws `invalid_argument`, with what would work, where the numbers do not go together.
[[nodiscard]] SimtShape simt_shape(const Spmm& problem, const Target& target, const Config& config);

}  // namespace sparsekiln::cuda
