#pragma once

#include <cstdint>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "autotune/cuda/counts.h"
#include "compiler/block_runs.h"
#include "compiler/cuda/loop_tuning.h"
#include "compiler/schedule.h"
#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// What one launch does, all CTAs together, by the emulator's measures. Formulas are in docs/tuning-model.md.
struct Work {
  std::int64_t global_bytes = 0;     ///< read and written: distinct ones of each request
  std::int64_t repeated_bytes = 0;   ///< of these, read again by other warps of the same CTA
  std::int64_t multicast_bytes = 0;  ///< that other CTAs of a cluster get of these, too
  std::int64_t memory_bytes = 0;     ///< of different addresses: these come from memory once
  /// Data that is loaded again and again: from L2, as far as L2 holds it.
  struct Again {
    std::int64_t loads = 0;   ///< bytes
    std::int64_t bytes = 0;   ///< of different addresses
    std::int64_t active = 0;  ///< of these, in use at the same time
  };
  Again again;                     ///< x
  std::int64_t piece_bytes = 0;    ///< of x that lie together, where threads copy them; 0: the TMA does
  Again again_in_rounds;           ///< the weight, by each round of batch tiles
  std::int32_t kernels = 1;        ///< one after the other
  std::int64_t partial_bytes = 0;  ///< of these global bytes, sums that CTAs combine
  std::int64_t products = 0;       ///< tensor-core instructions of warps
  /// As many as if the steps that only keep pace with a team's other worker had blocks: they take its time.
  std::int64_t products_in_time = 0;
  std::int64_t instructions = 0;  ///< all others
  std::int64_t fmas = 0;  ///< multiply-adds on CUDA cores, of threads; their instructions are among those
  std::int64_t shared_bytes = 0;  ///< through shared memory, by copies and by what feeds products
  std::int64_t chunks = 0;        ///< of all CTAs, of all warps where each has its own
  double longest_chunks = 0;      ///< of the CTA that has most
  std::int64_t items = 0;         ///< whose results are written, of all CTAs
  std::int64_t item_bytes = 0;    ///< of an item's results
  std::int64_t rounds = 1;        ///< of batch tiles, one after the other
  std::int64_t ctas = 0;
  double largest = 1;       ///< the work of the CTA that has most, of the mean
  double uneven_bytes = 1;  ///< and what it reads, where that differs, of its share of all
};

/// Bytes that a launch reads from memory more than once, where L2 has room for so many bytes of what is read
/// again.
[[nodiscard]] double bytes_read_again(const Work& work, double room);

/// What the code of a config's family does each time. For configs that validate.
[[nodiscard]] LoopCosts loop_costs(const Spmm& problem, const Target& target, const Config& config);
[[nodiscard]] SddmmCosts loop_costs(const Sddmm& gradient, const Target& target, const Config& config);

/// The work of a schedule from make_schedule. Exact in bytes and products where no block row or column is
/// cut, no block's scale is 0, beta is 0, there is no bias, and the tables are in constant memory. Where they
/// are in global memory: if also no rows are merged and warps share chunks (not CtaCosts::chunk_per_warp).
[[nodiscard]] Work work_of(const Spmm& problem, const Target& target, const Config& config,
                           const Schedule& schedule, std::int64_t n);

/// The work of a schedule from make_block_runs and one pair of operands. Exact under the same conditions.
[[nodiscard]] Work work_of(const Sddmm& gradient, const Target& target, const Config& config,
                           const BlockRuns& schedule, std::int64_t n);

/// The work for callers that have no schedule, in O(block rows). Where a config puts no rows together (rows,
/// merge and cluster_rows are 1) it is what work_of says, but for `largest`. Where rows are put together, a
/// schedule is made if the layout is small (RowShares::are_scheduled); else it is what is expected of rows
/// whose columns are drawn at random. For more than 2048 block rows from LayoutStatistics alone.
[[nodiscard]] Work estimate(const Spmm& problem, const Target& target, const Config& config, std::int64_t n);
[[nodiscard]] Work estimate(const Sddmm& gradient, const Target& target, const Config& config,
                            std::int64_t n);

/// The overloads for callers that have the costs of the kernel's code, and what configs of one layout share.
[[nodiscard]] Work estimate(const Spmm& problem, const Target& target, const Config& config,
                            const LoopCosts& costs, std::int64_t n, RowShares& rows);
[[nodiscard]] Work estimate(const Sddmm& gradient, const Target& target, const Config& config,
                            const SddmmCosts& costs, std::int64_t n);

}  // namespace sparsekiln::cuda
