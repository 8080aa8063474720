#include "compiler/cuda/sddmm_shape.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/refusal.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kMostStages = 8;
constexpr std::int32_t kPairs = 256;     ///< bytes of shared memory
constexpr std::int32_t kMostSums = 128;  ///< of a thread, so that operands still have registers

std::int32_t element_bytes(const Sddmm& gradient) {
  return static_cast<std::int32_t>(size_of(gradient.dtype));
}

void check_numbers(const Sddmm& gradient, const Target& target, const Config& config) {
  const std::int32_t element = element_bytes(gradient);
  const bool asynchronous = target.compute_capability() >= 80;
  if (!is_power_of_two(config.rows, 1, 8)) refuse(config, "rows, the blocks of a run, is 1, 2, 4 or 8");
  if (run_inputs(gradient, config) * element > kMostSddmmRowBytes)
    refuse(config, fmt::format("rows={} blocks of {} inputs side by side: {} at most, rows={} would work",
                               config.rows, gradient.block.in, kMostSddmmRowBytes / element,
                               std::max(1, kMostSddmmRowBytes / element / gradient.block.in)));
  if (!is_power_of_two(config.warps, 1, kMostSddmmWarps)) refuse(config, "warps is 1, 2, 4, 8 or 16");
  if (!is_power_of_two(config.tile_n, 8, kMostSddmmChunk))
    refuse(config, "tile_n, the batch rows of a stage, is 8, 16 … 128");
  if (asynchronous ? config.stages < 2 || config.stages > kMostStages : config.stages != 2)
    refuse(config, asynchronous ? "stages is 2 to 8" : "stages is 2 where there is no asynchronous copy");
  if (32 * config.warps < gradient.block.out * element / 4)
    refuse(config, fmt::format("a block of {} outputs: warps={} would work", gradient.block.out,
                               gradient.block.out * element / 128));
}

/// The memory of a CTA.
void share_memory(SddmmShape& shape, const Sddmm& gradient, const Target& target, const Config& config) {
  const std::int32_t columns = run_inputs(gradient, config);
  const std::int32_t derived = gradient.exchanged() ? columns : gradient.block.out;  // as large as its z
  const std::int32_t operands =
      gradient.block.out + columns + (gradient.derivative == Activation::none ? 0 : derived);
  const std::int32_t bias = gradient.bias_gradient ? 32 * config.warps * 8 : 0;
  const std::int32_t sums = 4 * gradient.block.out * columns;
  const std::int64_t whole = multiprocessor(target).shared_per_cta;
  if (sums > whole)
    refuse(config,
           fmt::format("the sums of a run have {} bytes, and shared memory of {} {}; rows={} would work",
                       sums, target.arch, whole, config.rows / 2));
  shape.static_bytes = sums + kPairs > whole ? 0 : kPairs;
  const std::int64_t most = whole - shape.static_bytes;
  const std::int32_t stages = config.stages * config.tile_n * operands * element_bytes(gradient);
  const std::int32_t bytes = std::max({stages, sums, bias});
  if (bytes > most)
    refuse(config,
           fmt::format("{} bytes of shared memory, where {} has {}; fewer stages, or a smaller tile_n, "
                       "would work",
                       bytes, target.arch, most));
  shape.shared_bytes = bytes;
}

}  // namespace

SddmmShape sddmm_shape(const Sddmm& gradient, const Target& target, const Config& config,
                       ShareOut share_out) {
  check_numbers(gradient, target, config);
  SddmmShape shape;
  shape.threads = 32 * config.warps;
  share_out(shape, gradient, config);
  if (shape.sums > kMostSums)
    refuse(config, fmt::format("{} sums a thread are more than {}; more warps, or fewer rows, would work",
                               shape.sums, kMostSums));
  share_memory(shape, gradient, target, config);
  return shape;
}

}  // namespace sparsekiln::cuda
