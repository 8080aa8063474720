#include "compiler/cuda/wgmma_shape.h"

#include <algorithm>

#include <fmt/format.h>

#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/refusal.h"
#include "compiler/element.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kMostStages = 8;
constexpr std::int32_t kMostColumns = 256;  ///< of a wgmma

void check_numbers(const Spmm& problem, const Config& config) {
  if (config.tile_n != 128 && config.tile_n != 256)
    refuse(config, "variant wgmma shares a tile out to two warpgroups: tile_n is 128 or 256");
  if (config.warps != kWgmmaWarps)
    refuse(config, fmt::format("variant wgmma has three warpgroups: warps={} would work", kWgmmaWarps));
  if (config.stages < 2 || config.stages > kMostStages)
    refuse(config, fmt::format("stages is 2 to {}", kMostStages));
  if (config.cluster != 1 && config.cluster != 2)
    refuse(config, "one or two batch tiles share blocks in a cluster: cluster=2 would work");
  if (config.cluster_rows != 1 && config.cluster_rows != 2)
    refuse(config, "one or two CTAs share tiles of x in a cluster: cluster_rows=2 would work");
  if (config.tile_out != 0)
    refuse(config, "a warpgroup of variant wgmma has all outputs of a tile: tile_out=0 would work");
  if (config.operand_a != OperandA::x)
    refuse(config, "batch rows are the rows of variant wgmma's products: operand_a=x would work");
  if (config.table == TableForm::unrolled)
    refuse(config, "one thread of variant wgmma reads the schedule; table=constant would work");
  if (const std::int32_t outputs = problem.block.out * config.merge; outputs > kMostColumns)
    refuse(config, fmt::format("an output tile has up to {} outputs here, not {}; {} would work",
                               kMostColumns, outputs, config.merge > 1 ? "merge=1" : "variant mma"));
}

}  // namespace

WgmmaShape wgmma_shape(const Spmm& problem, const Target& target, const Config& config) {
  check_numbers(problem, config);
  const std::int32_t tiles = config.rows * problem.weights();
  WgmmaShape shape;
  const std::int32_t block_bytes = problem.block.in * static_cast<std::int32_t>(size_of(problem.dtype));
  shape.line_bytes = block_bytes % 128 == 0 ? 128 : 64;
  const std::int64_t bytes_x = std::int64_t{config.tile_n} * shape.line_bytes;
  const std::int64_t bytes_w = std::int64_t{problem.block.out} * config.merge * shape.line_bytes;
  const std::int64_t most_bytes = multiprocessor(target).shared_per_cta - kWgmmaStaticShared;
  const auto value_bytes = static_cast<std::int32_t>(size_of(problem.out_dtype));
  shape.interleave = problem.by_columns() ? 8 / value_bytes : 16 / value_bytes;
  shape.chunk.parts = block_bytes / shape.line_bytes;
  shape.chunk.weights = problem.weights();
  if (shape.chunk.parts > kMostParts)
    refuse(config,
           fmt::format("blocks of {} inputs have more than {} parts of {} bytes; variant mma would work",
                       problem.block.in, kMostParts, shape.line_bytes));
  shape.stages_x = config.stages;
  // As many blocks as may be multiplied with the tiles of x; where memory is short, as many as there are
  // tiles.
  shape.stages_w = config.stages * tiles;
  const auto bytes = [&] { return shape.stages_x * bytes_x + shape.stages_w * bytes_w; };
  while (bytes() > most_bytes && shape.stages_w > config.stages) --shape.stages_w;
  shape.shared_bytes = bytes();
  if (shape.shared_bytes > most_bytes)
    refuse(config,
           fmt::format("needs {} bytes of shared memory of {}; fewer stages or a smaller tile_n would work",
                       shape.shared_bytes, most_bytes));
  shape.sums = tiles * config.merge * problem.block.out * config.tile_n / (32 * 8);
  shape.products = is_float8(problem.dtype) ? shape.sums / tiles : 0;
  if (shape.sums > kMostWgmmaSums || shape.sums + shape.products > kMostWgmmaProducts)
    refuse(config, fmt::format("a thread would hold {} sums, more than the {} that its registers are shared "
                               "out for; a smaller tile_n, rows=1 or merge=1 would work",
                               shape.sums + shape.products,
                               shape.products == 0 ? kMostWgmmaSums : kMostWgmmaProducts));
  return shape;
}

}  // namespace sparsekiln::cuda
