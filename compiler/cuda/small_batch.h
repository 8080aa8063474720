#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/tables.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

// What the families for small batches share: their warps have chunks of their own, and add their sums at an
// item's end (templates/warp_sums.cuh).

/// Bytes of each row of x and W in a chunk.
inline constexpr std::int32_t kWarpChunkBytes = 64;
/// Shared memory beside the dynamic one: the flag of the combine, and what aligns the rest.
inline constexpr std::int64_t kWarpStaticShared = 128;

/// What the families for small batches have in common: products with batch-major activations. Rows are
/// aligned to 16 bytes, and x's are a multiple of 16 bytes long. Throws `invalid_argument` for another
/// problem, with the variant that would work.
void validate_small_batch(const Spmm& problem, const Target& target, Variant variant);

/// The numbers of a config that mean the same in all of them; a tile has at most `most_n` batch rows. Throws
/// `invalid_argument`, with what would work, where they do not go together.
void validate_warp_tile(const Spmm& problem, const Config& config, std::int32_t most_n);

/// Outputs of a block that a warp computes: Config::tile_out, or all.
[[nodiscard]] std::int32_t warp_outputs(const Spmm& problem, const Config& config);

/// Warps that share a chunk, each with outputs, or a weight, of its own: WarpShare in
/// templates/load_warp.cuh.
[[nodiscard]] std::int32_t warp_shares(const Spmm& problem, const Config& config);

/// Why the tuner does not try a config of these families, as FamilyTuning::rejection; null: it does.
[[nodiscard]] const char* warp_rejection(const Spmm& problem, const Target& target, const Config& config);

/// A segment of a block's columns, a block, or several.
[[nodiscard]] ChunkShape warp_chunk(const Spmm& problem, const Config& config);

/// Neighbouring outputs that a thread stores at once: up to 16 bytes as long as every thread of the CTA has
/// some to store, and at least 4 bytes.
[[nodiscard]] std::int32_t warp_run(const Spmm& problem, const Config& config);

/// Outputs of a lane where the warps of a CTA have met, of all warps that have some, together.
[[nodiscard]] std::int32_t gathered_outputs(const Spmm& problem, const Config& config);

/// Dynamic shared memory in which the warps of a CTA add their sums.
[[nodiscard]] std::int64_t warp_sums_bytes(const Spmm& problem, const Config& config);

/// Dynamic shared memory that a CTA may have.
[[nodiscard]] std::int64_t most_dynamic_shared(const Target& target);

}  // namespace sparsekiln::cuda
