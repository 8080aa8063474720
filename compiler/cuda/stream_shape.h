#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/tables.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// The numbers of templates/spmm_stream.cuh that follow from a config.
struct StreamShape {
  std::int32_t threads = 0;       ///< a CTA
  std::int32_t run = 0;           ///< neighbouring outputs of a thread where they are stored
  std::int32_t sums = 0;          ///< a thread
  ChunkShape chunk;               ///< 64 bytes of k
  std::int64_t shared_bytes = 0;  ///< dynamic
  bool tensor_cores = false;      ///< all but f32 with math ieee
  bool async_copy = false;        ///< cp.async: sm_80 and later
};

inline constexpr std::int32_t kMostStreamStages = 8;
/// What a thread of any architecture may have.
inline constexpr std::int32_t kMostThreadRegisters = 255;

/// Dynamic shared memory: of all stages of all warps, and where the warps meet.
[[nodiscard]] std::int64_t stream_shared_bytes(const Spmm& problem, const Config& config);

/// The most registers that a thread takes.
[[nodiscard]] std::int32_t stream_registers(const Spmm& problem, const Target& target, const Config& config);

/// Whether a CTA has the registers and the shared memory.
[[nodiscard]] bool stream_fits(const Spmm& problem, const Target& target, const Config& config);

/// Throws `invalid_argument`, with what would work, where the numbers do not go together.
[[nodiscard]] StreamShape stream_shape(const Spmm& problem, const Target& target, const Config& config);

}  // namespace sparsekiln::cuda
