#include "compiler/cuda/mma_shape.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/refusal.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kRowsA = 16;    ///< of a tensor-core tile, m16n8
constexpr std::int32_t kColumnsB = 8;  ///< of the same tile
constexpr std::int32_t kMostTileN = 256;
constexpr std::int32_t kMostWarps = 16;
constexpr std::int32_t kMostStages = 8;
constexpr std::int32_t kLargestChunk = 8;     ///< units: a row of 128 bytes, all banks once
constexpr std::int32_t kMostBlocks = 4;       ///< of a chunk: the last one of a row is filled up with zeros
constexpr std::int32_t kMostRegisters = 255;  ///< a thread
constexpr std::int32_t kOtherRegisters = 56;  ///< a thread, besides sums and fragments
/// The same where a chunk passes through registers, besides those: the addresses of its copies take
/// registers, too. So many that nothing is let through which NVRTC 13 spills for sm_75.
constexpr std::int32_t kOtherRegistersStaged = 88;

bool within(std::int32_t value, std::int32_t low, std::int32_t high) { return value >= low && value <= high; }

/// The tile as the tensor cores see it.
struct TileGrid {
  std::int32_t out;  ///< tensor-core tiles along the outputs
  std::int32_t n;    ///< along the batch rows
};

/// One way to share the tile out over warps.
struct WarpGrid {
  std::int32_t out = 0;
  std::int32_t n = 0;
};

bool divides(const WarpGrid& warps, const TileGrid& tile) {
  return tile.out % warps.out == 0 && tile.n % warps.n == 0;
}

/// Sums of a thread.
std::int32_t sums_of(const WarpGrid& warps, const TileGrid& tile) {
  return tile.out / warps.out * (tile.n / warps.n) * 4;
}

std::int32_t fragments_of(const WarpGrid& warps, const TileGrid& tile, OperandA a) {
  const std::int32_t out = tile.out / warps.out;
  const std::int32_t n = tile.n / warps.n;
  return a == OperandA::w ? 4 * out + 2 * n : 4 * n + 2 * out;
}

/// Neighboring outputs of a thread, where W is read by columns and its outputs are in their own order: as
/// many as make whole sectors of what a warp stores at once, 32 bytes of eight lanes (W as A) or of four.
std::int32_t interleave_by_columns(const WarpGrid& warps, const TileGrid& tile, const Spmm& problem,
                                   OperandA a) {
  const bool floats = problem.dtype == DType::f32;
  // Feature-major, what lies side by side are batch rows: outputs stay as they are.
  const bool exchanges = !floats && problem.out_dtype != DType::f32 && !problem.feature_major();
  if (a == OperandA::w) return floats || exchanges ? 2 : 1;
  if (tile.out / warps.out % 2 != 0) return 2;
  return floats || exchanges ? 4 : 2;
}

/// Neighboring outputs of a thread: of as many tiles as its warp has, to 16 bytes.
std::int32_t interleave_of(const WarpGrid& warps, const TileGrid& tile, const Spmm& problem, OperandA a) {
  if (problem.by_columns()) return interleave_by_columns(warps, tile, problem, a);
  const DType out_dtype = problem.out_dtype;
  std::int32_t interleave = 2;
  while (interleave * 2 * static_cast<std::int32_t>(size_of(out_dtype)) <= 16 &&
         tile.out / warps.out % interleave == 0)
    interleave *= 2;
  return interleave;
}

/// The grid of `warps` warps that reads the fewest fragments for its products; of equals, the one with the
/// longest runs of outputs. With Config::tile_out > 0 a warp has so many.
WarpGrid choose_warps(const Spmm& problem, const Config& config, const TileGrid& tile) {
  WarpGrid best;
  const auto cost = [&](const WarpGrid& warps) {
    return 64 * fragments_of(warps, tile, config.operand_a) -
           interleave_of(warps, tile, problem, config.operand_a);
  };
  for (std::int32_t out = 1; out <= config.warps; ++out) {
    if (config.warps % out != 0) continue;
    const WarpGrid warps{out, config.warps / out};
    if (!divides(warps, tile)) continue;
    if (config.tile_out != 0 && std::int64_t{config.tile_out} * out != problem.block.out * config.merge)
      continue;
    if (best.out == 0 || cost(warps) < cost(best)) best = warps;
  }
  return best;
}

/// Tiles of activations in a stage: x, and z, if x is multiplied by a derivative there.
std::int32_t activations_of(const Spmm& problem) { return problem.derivative == Activation::none ? 1 : 2; }

/// Where there is no asynchronous copy, a chunk passes through registers while the one before it is
/// multiplied: those of a thread.
std::int32_t held_registers(const Spmm& problem, const Config& config, const MmaShape& shape) {
  if (shape.async_copy) return 0;
  const auto passes = [&](std::int32_t rows) {
    return (rows * shape.chunk_units + shape.threads - 1) / shape.threads;
  };
  return 4 * (activations_of(problem) * passes(config.tile_n) + passes(config.merge * problem.block.out));
}

std::int64_t shared_bytes(const Spmm& problem, const Config& config, std::int32_t units) {
  return std::int64_t{16} * units * config.stages *
         (activations_of(problem) * config.tile_n + config.merge * problem.block.out);
}

bool has_async_copy(const Target& target) { return target.compute_capability() >= 80; }

/// Rows of the operand that holds the outputs, and of the one that holds the batch rows.
std::int32_t rows_out(const Config& config) { return config.operand_a == OperandA::w ? kRowsA : kColumnsB; }
std::int32_t rows_n(const Config& config) { return config.operand_a == OperandA::w ? kColumnsB : kRowsA; }

/// Output tiles of an item.
std::int32_t tiles_of(const Spmm& problem, const Config& config) { return config.rows * problem.weights(); }

std::int32_t block_units(const Spmm& problem) {
  return problem.block.in * static_cast<std::int32_t>(size_of(problem.dtype)) / 16;
}

void check_numbers(const Spmm& problem, const Target& target, const Config& config) {
  const std::int32_t most_stages = has_async_copy(target) ? kMostStages : 2;
  if (problem.by_columns() && config.merge != 1)
    refuse(config,
           fmt::format("{} reads blocks by columns, which does not merge block rows; merge=1 would work",
                       name(problem.operation)));
  if (problem.block.out * config.merge % rows_out(config) != 0)
    refuse(config,
           fmt::format("operand_a=w needs blocks of {} outputs or more, not {}; operand_a=x{} would work",
                       kRowsA, problem.block.out, problem.by_columns() ? "" : " or merge=2"));
  if (!within(config.tile_n, rows_n(config), kMostTileN) || config.tile_n % rows_n(config) != 0)
    refuse(config, fmt::format("tile_n is a multiple of {} up to {} with operand_a={}", rows_n(config),
                               kMostTileN, name(config.operand_a)));
  if (!within(config.warps, 1, kMostWarps)) refuse(config, fmt::format("warps is 1 to {}", kMostWarps));
  if (!within(config.stages, 1, most_stages))
    refuse(config, fmt::format("stages is 1 to {} for {}{}", most_stages, target.arch,
                               has_async_copy(target) ? "" : ", which has no asynchronous copy"));
}

/// The tile over the warps. Throws where they do not share it out.
WarpGrid share_out(const Spmm& problem, const Config& config, const TileGrid& tile) {
  const WarpGrid warps = choose_warps(problem, config, tile);
  if (warps.out == 0)
    refuse(config,
           fmt::format("{} warps{} do not share out a tile of {} × {} tensor-core tiles (outputs × batch "
                       "entries); fewer warps, a larger tile_n or tile_out=0 (automatic) would work",
                       config.warps,
                       config.tile_out == 0 ? "" : fmt::format(" of {} outputs each", config.tile_out),
                       tile.out, tile.n));
  if (const std::int32_t tiles = tile.n / warps.n; problem.feature_major() &&
                                                   config.operand_a == OperandA::w &&
                                                   problem.dtype == DType::f32 && tiles > 1 && tiles % 2 != 0)
    refuse(config,
           fmt::format("feature-major floats with operand_a=w are read in pairs of tiles, and a warp has "
                       "{}; operand_a=x or another tile_n would work",
                       tiles));
  return warps;
}

/// The largest chunk that shared memory and registers can hold: `fragments` are those of a thread.
void choose_chunk(MmaShape& shape, const Spmm& problem, const Target& target, const Config& config,
                  std::int32_t fragments) {
  const std::int32_t units = block_units(problem);
  const std::int64_t most_bytes = multiprocessor(target).shared_per_cta - kMmaStaticShared;
  shape.chunk_units = std::min(kLargestChunk, units * (tiles_of(problem, config) == 1 ? kMostBlocks : 1));
  if (shape.chunk_units < 2)
    refuse(config, fmt::format("rows={} multiplies block by block, and the {} inputs of one do not fill the "
                               "tensor core's k; rows=1 would work",
                               config.rows, problem.block.in));
  const std::int32_t least_units = std::max(2, units / kMostParts);  // the tables count parts to there
  while (shape.chunk_units > least_units && shared_bytes(problem, config, shape.chunk_units) > most_bytes)
    shape.chunk_units /= 2;
  const auto registers_fit = [&] {
    const std::int32_t registers = shape.sums + fragments + held_registers(problem, config, shape) +
                                   (shape.async_copy ? kOtherRegisters : kOtherRegistersStaged);
    return registers <= kMostRegisters && registers * shape.threads <= kRegisterFile;
  };
  while (!shape.async_copy && shape.chunk_units > least_units && !registers_fit()) shape.chunk_units /= 2;
  if (shape.sums > kMostMmaSums || !registers_fit())
    refuse(config, fmt::format("a thread would hold {} sums, more than the registers of {} threads hold; "
                               "more warps or a smaller tile_n would work",
                               shape.sums, shape.threads));
  shape.shared_bytes = shared_bytes(problem, config, shape.chunk_units);
  if (shape.shared_bytes > most_bytes)
    refuse(config,
           fmt::format("needs {} bytes of shared memory of {}; fewer stages or a smaller tile_n would work",
                       shape.shared_bytes, most_bytes));
}

}  // namespace

MmaShape mma_shape(const Spmm& problem, const Target& target, const Config& config) {
  check_numbers(problem, target, config);
  const TileGrid tile{problem.block.out * config.merge / rows_out(config), config.tile_n / rows_n(config)};
  const WarpGrid warps = share_out(problem, config, tile);
  MmaShape shape;
  shape.async_copy = has_async_copy(target);
  shape.threads = 32 * config.warps;
  shape.warps_out = warps.out;
  shape.warps_n = warps.n;
  shape.interleave = interleave_of(warps, tile, problem, config.operand_a);
  shape.sums = tiles_of(problem, config) * sums_of(warps, tile);
  choose_chunk(shape, problem, target, config, fragments_of(warps, tile, config.operand_a));
  const std::int32_t units = block_units(problem);
  if (shape.chunk_units > units)
    shape.chunk.blocks = shape.chunk_units / units;
  else
    shape.chunk.parts = units / shape.chunk_units;
  shape.chunk.weights = problem.weights();
  return shape;
}

}  // namespace sparsekiln::cuda
