#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/block_runs.h"
#include "compiler/cuda/tables.h"
#include "compiler/schedule.h"
#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// Figures of a schedule, of one batch tile: all that its work follows from.
struct Counts {
  std::int64_t workers = 1;
  std::int64_t items = 0;
  std::int64_t clusters = 0;  ///< items that reach y: of the parts of a split cluster, one does
  std::int64_t chunks = 0;    ///< stages' contents, as the kernel's tables count them
  std::int64_t loads = 0;     ///< tiles of x, of a block's inputs each
  std::int64_t partials = 0;  ///< parts of split clusters
  std::int64_t counters = 0;  ///< split clusters
  double largest = 1;         ///< steps of the worker that has most, of the mean
};
[[nodiscard]] Counts counts_of(const Schedule& schedule, ChunkShape chunk);

/// What make_schedule would give for a batch of n, without making it.
[[nodiscard]] Counts expected_counts(const Spmm& problem, const Target& target, const Config& config,
                                     ChunkShape chunk, std::int64_t n);

/// Figures of a schedule of block runs.
struct RunCounts {
  std::int64_t workers = 1;
  std::int64_t runs = 0;
  /// Warps along the inputs that have blocks to multiply, each run's added up.
  std::int64_t warps_in = 0;
  double largest = 1;
};
/// `warps`: side by side along the inputs of a run of config.rows blocks.
[[nodiscard]] RunCounts counts_of(const BlockRuns& schedule, const Config& config, std::int32_t warps);
[[nodiscard]] RunCounts expected_counts(const Sddmm& gradient, const Target& target, const Config& config,
                                        std::int32_t warps);

}  // namespace sparsekiln::cuda
