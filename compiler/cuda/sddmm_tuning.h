#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/loop_tuning.h"
#include "compiler/cuda/sddmm_shape.h"
#include "compiler/sddmm.h"

// What families of gradients of the weight have in common for the tuner.

namespace sparsekiln::cuda {

/// The numbers of a default config that do not depend on the family: rows, tile_n and stages. As many blocks
/// side by side as fill a tile, fewer where the layout would not keep all workers busy.
[[nodiscard]] Config default_sddmm_stages(const Sddmm& gradient, const Target& target, std::int64_t n);
/// Doubles the warps of a config, up to 8, as long as each has more than `sums_of_warp` sums of a run.
void add_warps(Config& config, const Sddmm& gradient, std::int64_t sums_of_warp);
/// As many CTAs a worker, up to 4, as a multiprocessor holds.
[[nodiscard]] std::int32_t resident_split(const Target& target, const SddmmShape& shape);

/// Fitted instructions that differ between families.
struct SddmmFit {
  double begin;    ///< of a warp
  double dy_copy;  ///< of a pass of a warp
  double x_copy;   ///< of a pass of a warp
};
/// The costs that do not depend on how a tile is multiplied.
[[nodiscard]] SddmmCosts sddmm_copy_costs(const Sddmm& gradient, const Config& config,
                                          const SddmmShape& shape, const SddmmFit& fit);

}  // namespace sparsekiln::cuda
