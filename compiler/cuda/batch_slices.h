#pragma once

#include <cstdint>
#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/block_runs.h"
#include "compiler/sddmm.h"

namespace sparsekiln::cuda {

/// CTAs that share a run, each with a slice of the batch rows (templates/sddmm.cuh): as many as keep all of
/// target.workers × config.split busy, where a convolution has fewer runs, or there are fewer groups of
/// pieces: for the largest batch, of which smaller ones use some. 1: a CTA sums all rows.
[[nodiscard]] std::int32_t batch_slices(const Sddmm& gradient, const Target& target, const Config& config,
                                        std::int64_t runs);

/// No layout has more of them: 1 where a CTA always sums all rows.
[[nodiscard]] std::int32_t most_slices(const Sddmm& gradient, const Config& config);

/// Whether they write sums of dw, in its order, and a pass of the launch adds those: else the last CTA of a
/// run or group that arrives.
[[nodiscard]] constexpr bool adds_slices_after(const Config& config) {
  return config.variant == Variant::halo;
}

/// Bytes of the workspace that they write their sums to.
[[nodiscard]] std::int64_t sums_bytes(const Sddmm& gradient, const Config& config, std::int64_t runs,
                                      std::int32_t slices);

/// Bytes of the counters in front of it: enough for every entry of a plan.
[[nodiscard]] std::int64_t counter_bytes_of(const Sddmm& gradient, const Target& target, const Plan& plan,
                                            const std::vector<BlockRuns>& schedules);

}  // namespace sparsekiln::cuda
