#include "compiler/cuda/halo_shape.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/wgmma_shape.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kGroupOutputs = 64;  ///< of a warpgroup
constexpr std::int32_t kMostStages = 8;
constexpr std::int32_t kMostStagesW = 16;
constexpr std::array kTiles{64, 112, 128, 192, 224, 256};  ///< columns of a wgmma (templates/ptx_wgmma.cuh)

void check_numbers(const Spmm& problem, const Config& config) {
  if (std::find(kTiles.begin(), kTiles.end(), config.tile_n) == kTiles.end())
    refuse(config, "variant halo has tiles of 64, 112, 128, 192, 224 or 256 positions, eight of them wide");
  if (config.warps != kWgmmaWarps)
    refuse(config, fmt::format("variant halo has three warpgroups: warps={} would work", kWgmmaWarps));
  if (config.stages < 2 || config.stages > kMostStages)
    refuse(config, fmt::format("stages is 2 to {}", kMostStages));
  if (config.cluster * config.cluster_rows != 1)
    refuse(config, "variant halo has no clusters; cluster=1 cluster_rows=1 would work");
  if (config.tile_out != 0)
    refuse(config, "a warpgroup of variant halo has 64 outputs: tile_out=0 would work");
  if (config.operand_a != OperandA::x)
    refuse(config, "the rows of variant halo's products are outputs; leave operand_a out");
  if (config.table == TableForm::unrolled)
    refuse(config, "one thread of variant halo reads the schedule; table=constant would work");
  const std::int32_t outputs = problem.block.out * config.merge;
  if (config.rows > 2 || outputs * config.rows != 2 * kGroupOutputs)
    refuse(config,
           fmt::format("two warpgroups of variant halo have {} outputs each: rows=2, or 1, times merge "
                       "blocks of {} outputs are {}, not {}",
                       kGroupOutputs, problem.block.out, 2 * kGroupOutputs, outputs * config.rows));
}

/// Throws where boxes are none of the copy engine.
void check_reach(const HaloStage& stage, const Config& config) {
  constexpr std::int32_t kMostBox = 256;
  const std::int32_t height = stage.box[1] * stage.step[1];
  const std::int32_t width = stage.box[2] * stage.step[2];
  if (std::max(height, width) > kMostBox)
    refuse(config,
           fmt::format("taps of a tile reach {} x {} positions, and boxes of the copy engine are of {} "
                       "at most; a smaller tile_n or variant mma would work",
                       height, width, kMostBox));
}

std::int64_t rounded_up(std::int64_t bytes, std::int64_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Rounded up, for a divisor above 0.
std::int32_t ceiling(std::int32_t dividend, std::int32_t divisor) {
  return dividend > 0 ? (dividend - 1) / divisor + 1 : dividend / divisor;
}

}  // namespace

std::int32_t halo_offset(const Convolution& convolution, bool mirrored, std::size_t axis, std::int32_t tap) {
  const std::int32_t offset = tap * convolution.dilation[axis] - convolution.padding_before[axis];
  return mirrored ? ceiling(-offset, convolution.stride[axis]) : offset;
}

HaloStage halo_stage(const Convolution& convolution, bool mirrored, std::int32_t tile_n) {
  HaloStage stage;
  stage.box = {1, tile_n / kHaloTileWidth, kHaloTileWidth};
  for (std::size_t i = 0; i < stage.box.size(); ++i) {
    const std::int32_t last_tap = convolution.kernel[i] - 1;
    const std::int32_t dilation = convolution.dilation[i];
    const std::int32_t step = mirrored ? 1 : convolution.stride[i];
    const std::int32_t first = halo_offset(convolution, mirrored, i, mirrored ? last_tap : 0);
    const std::int32_t last = halo_offset(convolution, mirrored, i, mirrored ? 0 : last_tap);
    stage.first[i] = first;
    stage.step[i] = step;
    stage.phases[i] = std::min(convolution.kernel[i], step / std::gcd(step, dilation));
    if (i > 0) stage.box[i] += (last - first) / step;
  }
  stage.step[0] = stage.phases[0] = 1;  // a stage is of one depth
  return stage;
}

HaloShape halo_shape(const Spmm& problem, const Target& target, const Config& config) {
  check_numbers(problem, config);
  constexpr std::int64_t kLineBytes = 64;
  constexpr std::int64_t kBoxUnit = 1024;
  const Convolution& convolution = problem.convolution;
  HaloShape shape;
  shape.threads = 32 * kWgmmaWarps;
  shape.stage = halo_stage(convolution, problem.by_columns(), config.tile_n);
  shape.chunk.columns = convolution.kernel[1] * convolution.kernel[2];
  check_reach(shape.stage, config);
  const std::int64_t boxes = std::int64_t{shape.stage.boxes()} * problem.block.in / kHaloLine;
  const std::int64_t box_bytes = shape.stage.positions() * kLineBytes;
  const std::int64_t place_x = boxes * rounded_up(box_bytes, kBoxUnit);
  shape.bytes_x = boxes * box_bytes;
  shape.bytes_w = std::int64_t{problem.block.out} * config.merge * problem.block.in *
                  static_cast<std::int64_t>(size_of(problem.dtype));
  const std::int64_t most_bytes = multiprocessor(target).shared_per_cta - kWgmmaStaticShared;
  const auto bytes = [&] { return config.stages * place_x + config.rows * shape.stages_w * shape.bytes_w; };
  shape.stages_w = kMostStagesW;
  while (bytes() > most_bytes && shape.stages_w > 2) --shape.stages_w;
  shape.shared_bytes = bytes();
  if (shape.shared_bytes > most_bytes)
    refuse(config,
           fmt::format("needs {} bytes of shared memory of {}; fewer stages or a smaller tile_n would work",
                       shape.shared_bytes, most_bytes));
  return shape;
}

}  // namespace sparsekiln::cuda
