#include "compiler/cuda/wgmma_rows_shape.h"

#include <algorithm>

#include <fmt/format.h>

#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/wgmma_shape.h"
#include "compiler/element.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kMostStages = 8;
constexpr std::int32_t kMostStagesW = 8;  ///< of a warpgroup
/// Bytes of a row of x that are worth a line of their own: of narrower blocks, columns share lines of 128.
constexpr std::int32_t kLeastLine = 64;
constexpr std::int32_t kSharedLine = 128;

void check_numbers(const Spmm& problem, const Config& config) {
  if (config.tile_n != 128 && config.tile_n != 256)
    refuse(config, "batch rows are the columns of a product here: tile_n is 128 or 256");
  if (config.rows != 2 && config.rows != 3)
    refuse(config, "rows, the warpgroups that multiply, is 2 or 3 here");
  if (config.warps != 4 * (config.rows + 1))
    refuse(config, fmt::format("a warpgroup produces and {} multiply: warps={} would work", config.rows,
                               4 * (config.rows + 1)));
  if (config.merge * problem.block.out != kRowsTile)
    refuse(config, fmt::format("a warpgroup has {} outputs: {} would work", kRowsTile,
                               kRowsTile % problem.block.out == 0
                                   ? fmt::format("merge={}", kRowsTile / problem.block.out)
                                   : "variant wgmma"));
  if (config.stages < 2 || config.stages > kMostStages)
    refuse(config, fmt::format("stages is 2 to {}", kMostStages));
  if (config.cluster != 1 && config.cluster != 2)
    refuse(config, "one or two batch tiles share blocks in a cluster: cluster=2 would work");
  if (config.cluster_rows != 1) refuse(config, "no CTAs share x here: cluster_rows=1 would work");
  if (config.tile_out != 0)
    refuse(config, "a warpgroup has all outputs of a tile here: tile_out=0 would work");
  if (config.operand_a != OperandA::w)
    refuse(config, "outputs are the rows of products here: operand_a=w would work");
  if (config.table == TableForm::unrolled)
    refuse(config, "one thread reads the schedule here; table=constant would work");
}

}  // namespace

WgmmaRowsShape wgmma_rows_shape(const Spmm& problem, const Target& target, const Config& config) {
  check_numbers(problem, config);
  const auto element = static_cast<std::int32_t>(size_of(problem.dtype));
  const std::int32_t block_row = problem.block.in * element;
  WgmmaRowsShape shape;
  shape.threads = 32 * config.warps;
  shape.line_bytes = block_row >= kLeastLine ? block_row : kSharedLine;
  shape.piece_bytes = problem.weight_block().in * element;
  // ptxas 13.0 refuses instructions of 256 where a thread is launched with 128 registers, though it has 160
  // by then.
  shape.columns = config.rows == 3 ? 128 : config.tile_n;
  shape.chunk.columns = shape.line_bytes / block_row;
  shape.chunk.of_tiles = true;
  shape.stages_x = config.stages;
  const std::int64_t bytes_x = std::int64_t{shape.stages_x} * config.tile_n * shape.line_bytes;
  const std::int64_t bytes_w = std::int64_t{config.rows} * kRowsTile * block_row;
  const std::int64_t most = multiprocessor(target).shared_per_cta - kWgmmaStaticShared;
  // As many blocks as there is room for, up to those of two rounds of the ring of x.
  shape.stages_w = 2;
  while (2 * shape.stages_w <= kMostStagesW && bytes_x + 2 * shape.stages_w * bytes_w <= most)
    shape.stages_w *= 2;
  shape.shared_bytes = bytes_x + shape.stages_w * bytes_w;
  if (shape.shared_bytes > most)
    refuse(config,
           fmt::format("needs {} bytes of shared memory of {}; fewer stages or a smaller tile_n would work",
                       shape.shared_bytes, most));
  return shape;
}

}  // namespace sparsekiln::cuda
