#include "compiler/cuda/sddmm_tuning.h"

#include <algorithm>

namespace sparsekiln::cuda {

const char* sddmm_rejection(const Sddmm& gradient, const Config& config, bool ieee) {
  constexpr std::int32_t kLeastInputs = 32;
  if (gradient.ieee() != ieee) return kOtherArithmetic;
  if (run_inputs(gradient, config) < kLeastInputs)
    return "a run has fewer than 32 inputs, which a warp's reads and writes need";
  if (run_inputs(gradient, config) * size_of(gradient.dtype) > kMostSddmmRowBytes)
    return "a run has more inputs than a warp reads at once";
  return nullptr;
}

bool has_sddmm_registers(const Sddmm& gradient, const Target&, const Config&, const SddmmCosts& costs) {
  constexpr std::int32_t kMost = 190;
  return has_registers(gradient, gradient.cut_cols() != 0, costs, kMost);
}

/// Finding the position of x that a tap reads for a point.
constexpr double kPoint = 35;

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
  costs.shared_bytes = shape.shared_bytes + shape.static_bytes;
  costs.warps_in = shape.warps_in;
  costs.chunk_shared_bytes = std::int64_t{config.tile_n} * (gradient.block.out + columns) * element;
  const double copies = (fit.dy_copy + activation_costs(gradient)) * passes(gradient.block.out) +
                        (fit.x_copy + if_it(gradient.gathers(), kPoint)) * passes(columns);
  costs.begin = config.warps * fit.begin;
  costs.run = config.warps * (18 + 3.0 * (config.stages - 1) * passes(columns));
  costs.chunk = config.warps * (18 + copies);
  // 16 bytes of each lane.
  costs.block = 16.0 * static_cast<double>(gradient.block_elements()) *
                static_cast<double>(size_of(gradient.out_dtype)) / 512;
  costs.waits = {.chunk = 0.125, .instruction = 0.79};
  return costs;
}

}  // namespace sparsekiln::cuda
