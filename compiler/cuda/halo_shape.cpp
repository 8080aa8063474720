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

}  // namespace

void check_box(const Config& config, const HaloBox& box) {
  constexpr std::int32_t kMostBox = 256;
  const std::int32_t height = box.extents[1] * box.step[1];
  const std::int32_t width = box.extents[2] * box.step[2];
  if (std::max(height, width) > kMostBox)
    refuse(config,
           fmt::format("taps of a tile reach {} x {} positions, and boxes of the copy engine are of {} "
                       "at most; a smaller tile_n or variant mma would work",
                       height, width, kMostBox));
}

HaloShape halo_shape(const Spmm& problem, const Target& target, const Config& config) {
  check_numbers(problem, config);
  const Convolution& convolution = problem.convolution;
  HaloShape shape{.box = HaloBox(convolution, problem.by_columns(), config.tile_n)};
  shape.threads = 32 * kWgmmaWarps;
  shape.chunk.columns = convolution.kernel[1] * convolution.kernel[2];
  check_box(config, shape.box);
  const std::int64_t boxes = problem.block.in / kHaloLine;
  const std::int64_t place_x = boxes * shape.box.place_bytes();
  shape.bytes_x = boxes * shape.box.bytes();
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
