#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/tables.h"
#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// What the code of one kernel does each time, all warps of a CTA together. Instructions are counted for a
/// warp, tensor-core ones apart.
struct LoopCosts {
  ChunkShape shape;
  std::int32_t threads = 0;           ///< a CTA
  std::int64_t cta_shared_bytes = 0;  ///< shared memory it has, static and dynamic
  std::int32_t registers = 0;         ///< a thread, an estimate
  std::int64_t stage_bytes = 0;       ///< of global memory that one chunk brings
  std::int64_t chunk_products = 0;
  std::int64_t chunk_shared_bytes = 0;
  double begin = 0;  ///< instructions: of a CTA on one batch tile, besides what follows
  double chunk = 0;
  double item = 0;   ///< that ends, and the next one begins
  double store = 0;  ///< of an item that reaches y, all of whose batch entries exist
  double part = 0;   ///< of a part of a split item
};

/// Of a product with a batch tile of which `entries` batch entries exist.
[[nodiscard]] LoopCosts loop_costs(const Spmm& problem, const Target& target, const Config& config,
                                   std::int64_t entries);

/// Of a gradient of the weight: items are runs, and a chunk has config.tile_n batch entries. `chunk`,
/// chunk_products and chunk_shared_bytes are of one of `warps_in` groups of warps, side by side along the
/// inputs of a run, that has blocks to multiply; `store` is what all warps do for a chunk besides.
struct GradientCosts : LoopCosts {
  std::int32_t warps_in = 1;
};
[[nodiscard]] GradientCosts loop_costs(const Sddmm& gradient, const Target& target, const Config& config);

}  // namespace sparsekiln::cuda
