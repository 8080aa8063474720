#include "compiler/cuda/batch_slices.h"

#include <algorithm>

namespace sparsekiln::cuda {
namespace {

constexpr std::int64_t kMostSlices = 128;

}  // namespace

std::int32_t most_slices(const Sddmm& gradient, const Config& config) {
  if (!gradient.correlation && !groups_blocks(config)) return 1;
  const std::int64_t chunks = gradient.tiled_rows(gradient.batch.bound(), config) / config.tile_n;
  return static_cast<std::int32_t>(std::clamp(chunks / kChunksOfSlice, std::int64_t{1}, kMostSlices));
}

std::int32_t batch_slices(const Sddmm& gradient, const Target& target, const Config& config,
                          std::int64_t runs) {
  if (runs == 0) return 1;
  const std::int64_t ctas = std::int64_t{target.workers} * config.split;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(ctas / runs, 1, most_slices(gradient, config)));
}

std::int64_t sums_bytes(const Sddmm& gradient, const Config& config, std::int64_t runs, std::int32_t slices) {
  if (slices == 1) return 0;
  if (adds_slices_after(config))
    return 4 * slices *
           (gradient.layout.blocks() * gradient.block_elements() +
            (gradient.bias_gradient ? gradient.row_features() : 0));
  if (groups_blocks(config))  // of dy, too
    return 4 * runs * slices * config.rows * (std::int64_t{kPieceSide} * kPieceSide + kPieceSide);
  const std::int64_t part =
      std::int64_t{gradient.block.out} * (std::int64_t{config.rows} * gradient.block.in + 1);  // and of dy
  return 4 * runs * slices * part;
}

std::int64_t counter_bytes_of(const Sddmm& gradient, const Target& target, const Plan& plan,
                              const std::vector<BlockRuns>& schedules) {
  std::int64_t counters = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const std::int64_t runs = schedules[i].items();
    if (!adds_slices_after(plan[i].config) && batch_slices(gradient, target, plan[i].config, runs) > 1)
      counters = std::max(counters, runs);
  }
  return (4 * counters + 63) / 64 * 64;
}

}  // namespace sparsekiln::cuda
