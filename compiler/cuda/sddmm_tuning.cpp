#include "compiler/cuda/sddmm_tuning.h"

#include <algorithm>

#include "compiler/cuda/multiprocessor.h"

namespace sparsekiln::cuda {
namespace {

/// As many blocks as give a run of 128 inputs, or as the fullest block row has, and fewer where there would
/// not be two runs for each worker. Not fewer than give 32 inputs, which a warp's reads and writes need.
std::int32_t width_for(const Sddmm& gradient, const Target& target) {
  constexpr std::int32_t kColumns = 128;
  constexpr std::int32_t kLeastColumns = 32;
  std::int32_t width = std::clamp(kColumns / gradient.block.in, 1, 8);
  while (width > kLeastColumns / gradient.block.in && width > 1 &&
         (width / 2 >= gradient.layout.statistics().longest_row ||
          gradient.layout.blocks() / width < 2 * std::int64_t{target.workers}))
    width /= 2;
  return width;
}

}  // namespace

Config default_sddmm_stages(const Sddmm& gradient, const Target& target, std::int64_t n) {
  const auto element = static_cast<std::int64_t>(size_of(gradient.dtype));
  const auto step = static_cast<std::int32_t>(32 / element);  // batch rows of a k-step
  const std::int64_t room = multiprocessor(target).shared_per_cta - kSddmmStaticShared;
  Config config;
  config.rows = width_for(gradient, target);
  while (config.rows > 1 && 4 * gradient.block_elements() * config.rows > room) config.rows /= 2;
  config.tile_n = tile_for(n, 32, element == 2 ? 64 : 32);
  config.stages = target.compute_capability() < 80 ? 2 : 3;
  // A stage: dy, as much of z, and x.
  const std::int64_t entry = (2 * gradient.block.out + gradient.block.in * config.rows) * element;
  const auto fits = [&] { return config.stages * config.tile_n * entry <= room; };
  while (config.tile_n > 32 && !fits()) config.tile_n /= 2;
  while (config.stages > 2 && !fits()) --config.stages;
  while (config.tile_n > step && !fits()) config.tile_n /= 2;
  return config;
}

void add_warps(Config& config, const Sddmm& gradient, std::int64_t sums_of_warp) {
  const std::int64_t sums = gradient.block_elements() * config.rows;
  while (config.warps < 8 && sums > sums_of_warp * config.warps) config.warps *= 2;
}

std::int32_t resident_split(const Target& target, const SddmmShape& shape) {
  return std::clamp(resident_ctas(target, shape.threads, shape.shared_bytes + kSddmmStaticShared), 1, 4);
}

SddmmCosts sddmm_copy_costs(const Sddmm& gradient, const Config& config, const SddmmShape& shape,
                            const SddmmFit& fit) {
  const auto element = static_cast<std::int32_t>(size_of(gradient.dtype));
  const std::int32_t columns = run_inputs(gradient, config);
  const auto passes = [&](std::int32_t features) {
    return ceil_div(config.tile_n * features * element / 16, shape.threads);
  };
  SddmmCosts costs;
  costs.threads = shape.threads;
  costs.registers = std::min(kMostRegisters, shape.sums + 64);
  costs.shared_bytes = shape.shared_bytes + kSddmmStaticShared;
  costs.warps_in = shape.warps_in;
  costs.chunk_shared_bytes = std::int64_t{config.tile_n} * (gradient.block.out + columns) * element;
  const double copies =
      (fit.dy_copy + activation_costs(gradient)) * passes(gradient.block.out) + fit.x_copy * passes(columns);
  costs.begin = config.warps * fit.begin;
  costs.run = config.warps * (18 + 3.0 * (config.stages - 1) * passes(columns));
  costs.chunk = config.warps * (18 + copies);
  // 16 bytes of each lane.
  costs.block = 16.0 * static_cast<double>(gradient.block_elements()) *
                static_cast<double>(size_of(gradient.out_dtype)) / 512;
  return costs;
}

}  // namespace sparsekiln::cuda
