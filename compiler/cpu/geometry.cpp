#include <algorithm>

#include "compiler/cpu/passes.h"

namespace sparsekiln::cpu {
namespace {

/// Of x in one chunk of blocks. Two chunks, the one in use and the one being fetched, share L1 (32 KiB on
/// most processors) with the weight and the sums.
constexpr std::int32_t kChunkBytes = 8192;
/// Of a chunk's weight, where it is widened to float32 beforehand; all register tiles read it from L1.
constexpr std::int32_t kWidenedBytes = 16384;

/// Elements of a block that is too small for a stream of its own, where blocks lie apart.
constexpr std::int32_t kGroupedBlock = 1024;
/// Of the sums of a group of items, in L1.
constexpr std::int32_t kGroupBytes = 16384;

}  // namespace

Geometry::Geometry(const Spmm& problem, const Level& level, const Config& config, const Schedule& schedule,
                   std::int64_t counters_in_front)
    : dtype(problem.dtype),
      out_dtype(problem.out_dtype),
      epilogue(problem.epilogue),
      feature_major(problem.feature_major()),
      weights(problem.weights()),
      alignment(problem.alignment),
      last_row(problem.layout.rows() - 1),
      last_outputs(static_cast<std::int32_t>(problem.out_features() - last_row * problem.block.out)),
      word_elements(cpu::word_elements(dtype, problem.by_columns())),
      word_bytes(word_elements * static_cast<std::int32_t>(size_of(dtype))),
      block_out(problem.block.out),
      tile_n(config.tile_n),
      workers(schedule.workers()),
      thin(tile_n < level.lanes),
      axis(thin && problem.by_columns() ? Axis::output : axis_of(level, block_out, dtype, config)),
      order(config.packed          ? WeightOrder::packed
            : problem.by_columns() ? WeightOrder::columns
                                   : WeightOrder::rows) {
  words = problem.in_features() / word_elements;
  block_words = problem.block.in / word_elements;
  tile = register_tile(level, block_out, dtype, config);
  panel_bytes = thin ? 0 : 4 * words * tile_n;
  const std::int32_t shared = axis == Axis::output ? block_out : tile_n;
  chunk = std::clamp(kChunkBytes / (4 * block_words * shared), 1, kMostBlocks);
  if (widens()) chunk = std::clamp(kWidenedBytes / (4 * block_words * block_out), 1, chunk);
  sums_bytes = std::int64_t{4} * weights * block_out * tile_n;
  counters = schedule.counters;
  const bool grouped = thin && order == WeightOrder::columns && block_out * block_words <= kGroupedBlock;
  group_items = grouped ? std::max(1, kGroupBytes / static_cast<std::int32_t>(sums_bytes)) : 1;
  workspace.counter_bytes = counters > 0 ? counters_in_front : 0;
  workspace.bytes_per_tile = (panel_bytes + sums_bytes * schedule.partials + 63) / 64 * 64;
}

}  // namespace sparsekiln::cpu
