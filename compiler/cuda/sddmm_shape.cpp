#include "compiler/cuda/sddmm_shape.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/multiprocessor.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kMostWarps = 16;
constexpr std::int32_t kMostStages = 8;
constexpr std::int32_t kMostChunk = 128;
constexpr std::int32_t kMostRowBytes = 512;  ///< of an entry's x in a stage: a unit for each lane of a warp
constexpr std::int32_t kMostSums = 128;      ///< of a thread, so that operands still have registers
/// Of a warp's outputs and inputs: what a fragment is used for grows with them, and so do its registers.
constexpr std::int32_t kWarpOut = 32;
constexpr std::int32_t kWarpIn = 32;

[[noreturn]] void refuse(const Config& config, std::string_view why) {
  throw Error(ErrorKind::invalid_argument, fmt::format("config '{}': {}", to_string(config), why));
}

bool one_of(std::int32_t value, std::int32_t least, std::int32_t most) {
  return value >= least && value <= most && std::has_single_bit(static_cast<std::uint32_t>(value));
}

/// Warps over the outputs first, then over the inputs, as long as each has enough of them; what is left
/// shares the k-steps of a stage.
void share_out_warps(SddmmShape& shape, const Sddmm& gradient, const Config& config, std::int32_t columns) {
  const std::int32_t step = 32 / static_cast<std::int32_t>(size_of(gradient.dtype));  // batch entries
  shape.warps_out = std::min(config.warps, std::max(gradient.block.out / kWarpOut, 1));
  shape.warps_in = std::min(config.warps / shape.warps_out, std::max(columns / kWarpIn, 1));
  shape.warps_n = config.warps / shape.warps_out / shape.warps_in;
  shape.sums = std::max(gradient.block.out, 16) * columns / (32 * shape.warps_out * shape.warps_in);
  if (config.tile_n % (step * shape.warps_n) != 0)
    refuse(config,
           fmt::format(
               "{} warps share the k-steps of {} batch entries in a stage: {}fewer warps would work",
               shape.warps_n, step,
               step * shape.warps_n > kMostChunk ? "" : fmt::format("tile_n={} or ", step * shape.warps_n)));
}

void share_out_threads(SddmmShape& shape, const Sddmm& gradient, const Config& config, std::int32_t columns) {
  if (!one_of(config.tile_out, 4, 8))
    refuse(config, "tile_out is 4 or 8, the outputs and the inputs of one thread");
  shape.sums = config.tile_out * config.tile_out;
  const std::int32_t threads = gradient.block.out * columns / shape.sums;
  if (threads > shape.threads)
    refuse(config, fmt::format("{} threads have {} sums each of a run of {} x {}: {} would work",
                               shape.threads, shape.sums, gradient.block.out, columns,
                               threads <= 32 * kMostWarps ? fmt::format("warps={}", threads / 32)
                               : config.tile_out < 8      ? std::string("tile_out=8 and more warps")
                                                          : std::string("more warps, or fewer rows,")));
  // Feature-major entries are read by fours.
  const std::int32_t entries = shape.threads / threads * (gradient.feature_major() ? 4 : 1);
  if (config.tile_n % entries != 0)
    refuse(config, fmt::format("{} threads share {} batch entries: {} would work", shape.threads / threads,
                               config.tile_n,
                               entries <= kMostChunk ? fmt::format("tile_n={}", entries)
                                                     : std::string("fewer warps, or a smaller tile_out,")));
}

}  // namespace

SddmmShape sddmm_shape(const Sddmm& gradient, const Target& target, const Config& config) {
  const auto element = static_cast<std::int32_t>(size_of(gradient.dtype));
  const bool asynchronous = target.compute_capability() >= 80;
  if (!one_of(config.rows, 1, 8)) refuse(config, "rows, the blocks of a run, is 1, 2, 4 or 8");
  const std::int32_t columns = config.rows * gradient.block.in;
  if (columns * element > kMostRowBytes)
    refuse(config, fmt::format("rows={} blocks of {} inputs side by side: {} at most, rows={} would work",
                               config.rows, gradient.block.in, kMostRowBytes / element,
                               std::max(1, kMostRowBytes / element / gradient.block.in)));
  if (!one_of(config.warps, 1, kMostWarps)) refuse(config, "warps is 1, 2, 4, 8 or 16");
  if (!one_of(config.tile_n, 8, kMostChunk))
    refuse(config, "tile_n, the batch entries of a stage, is 8, 16 … 128");
  if (asynchronous ? config.stages < 2 || config.stages > kMostStages : config.stages != 2)
    refuse(config, asynchronous ? "stages is 2 to 8" : "stages is 2 where there is no asynchronous copy");
  SddmmShape shape;
  shape.threads = 32 * config.warps;
  if (shape.threads < gradient.block.out * element / 4)
    refuse(config, fmt::format("a block of {} outputs: warps={} would work", gradient.block.out,
                               gradient.block.out * element / 128));
  if (config.variant == Variant::mma) {
    if (config.tile_out != 0) refuse(config, "tile_out is 0: variant mma shares out its warps by itself");
    share_out_warps(shape, gradient, config, columns);
  } else {
    share_out_threads(shape, gradient, config, columns);
  }
  if (shape.sums > kMostSums)
    refuse(config, fmt::format("{} sums a thread are more than {}; more warps, or fewer rows, would work",
                               shape.sums, kMostSums));
  const std::int32_t operands =
      gradient.block.out * (gradient.derivative == Activation::none ? 1 : 2) + columns;
  const std::int32_t bias = gradient.bias_gradient ? shape.threads * 8 : 0;
  const std::int32_t sums = 4 * gradient.block.out * columns;
  const std::int64_t most = multiprocessor(target).shared_per_cta - kSddmmStaticShared;
  if (sums > most)
    refuse(config, fmt::format("the sums of a run have {} bytes, and shared memory of {} {}; {} would work",
                               sums, target.arch, most,
                               config.rows > 1 ? fmt::format("rows={}", config.rows / 2)
                                               : std::string("smaller blocks, or sm_80 or later,")));
  shape.shared_bytes = std::max({config.stages * config.tile_n * operands * element, sums, bias});
  if (shape.shared_bytes > most)
    refuse(config,
           fmt::format("{} bytes of shared memory, where {} has {}; fewer stages, or a smaller tile_n, "
                       "would work",
                       shape.shared_bytes, target.arch, most));
  return shape;
}

}  // namespace sparsekiln::cuda
