#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/tables.h"
#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// What a CTA takes of its multiprocessor.
struct CtaCosts {
  std::int32_t threads = 0;
  std::int32_t registers = 0;     ///< a thread, an estimate
  std::int64_t shared_bytes = 0;  ///< static and dynamic
};

/// What the code of a product does each time, all warps of a CTA together. Instructions are of warps, and
/// those of tensor cores apart.
struct LoopCosts : CtaCosts {
  ChunkShape shape;
  std::int64_t chunk_products = 0;      ///< tensor-core instructions of a chunk
  std::int64_t chunk_fmas = 0;          ///< multiply-adds on CUDA cores, of threads: part of `chunk`
  std::int64_t chunk_shared_bytes = 0;  ///< through shared memory, of a chunk
  double begin = 0;                     ///< instructions: of a CTA on one batch tile, besides what follows
  double chunk = 0;
  double load = 0;     ///< of a chunk that brings a tile of x
  double item = 0;     ///< that ends
  double store = 0;    ///< of an item that reaches y
  double entries = 0;  ///< likewise, for each 8 batch entries that exist
  double part = 0;     ///< of a part of a split item
};
[[nodiscard]] LoopCosts loop_costs(const Spmm& problem, const Target& target, const Config& config);

/// Likewise of a gradient of the weight. A chunk has config.tile_n batch entries.
struct SddmmCosts : CtaCosts {
  std::int32_t warps_in = 1;            ///< groups of warps, side by side along the inputs of a run
  std::int64_t group_products = 0;      ///< of a group that has blocks to multiply, in a chunk
  std::int64_t group_fmas = 0;          ///< likewise, on CUDA cores, of threads
  std::int64_t group_shared_bytes = 0;  ///< likewise
  std::int64_t chunk_shared_bytes = 0;  ///< of copies
  double begin = 0;                     ///< instructions: of a CTA
  double run = 0;
  double chunk = 0;  ///< of a run
  double group = 0;  ///< of a group that has blocks to multiply, in a chunk
  double block = 0;  ///< that is written
};
[[nodiscard]] SddmmCosts loop_costs(const Sddmm& gradient, const Target& target, const Config& config);

}  // namespace sparsekiln::cuda
