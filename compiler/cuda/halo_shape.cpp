#include "compiler/cuda/halo_shape.h"

#include <algorithm>
#include <array>

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

std::int64_t rounded_up(std::int64_t bytes, std::int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

HaloShape halo_shape(const Spmm& problem, const Target& target, const Config& config) {
  check_numbers(problem, config);
  constexpr std::int64_t kLineBytes = 64;
  constexpr std::int64_t kBoxUnit = 1024;
  const Convolution& convolution = problem.convolution;
  HaloShape shape;
  shape.threads = 32 * kWgmmaWarps;
  shape.box = {1, config.tile_n / kHaloTileWidth, kHaloTileWidth};
  for (std::size_t i = 0; i < shape.box.size(); ++i) {
    const std::int32_t reach = (convolution.kernel[i] - 1) * convolution.dilation[i];
    shape.first[i] =
        problem.by_columns() ? convolution.padding_before[i] - reach : -convolution.padding_before[i];
    if (i > 0) shape.box[i] += reach;  // a stage is of one depth
  }
  shape.chunk.columns = convolution.kernel[1] * convolution.kernel[2];
  constexpr std::int32_t kMostBox = 256;
  if (*std::max_element(shape.box.begin(), shape.box.end()) > kMostBox)
    refuse(config,
           fmt::format("taps of a tile reach {} x {} positions, and boxes of the copy engine are of {} "
                       "at most; variant mma would work",
                       shape.box[1], shape.box[2], kMostBox));
  const std::int64_t boxes = problem.block.in / kHaloLine;
  const std::int64_t box_bytes = std::int64_t{shape.box[1]} * shape.box[2] * kLineBytes;
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
