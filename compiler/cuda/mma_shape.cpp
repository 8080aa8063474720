#include "compiler/cuda/mma_shape.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/multiprocessor.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kRowsA = 16;    ///< of a tensor-core tile, m16n8
constexpr std::int32_t kColumnsB = 8;  ///< likewise
constexpr std::int32_t kMostTileN = 256;
constexpr std::int32_t kMostWarps = 16;
constexpr std::int32_t kMostStages = 8;
constexpr std::int32_t kLargestChunk = 8;  ///< units: a row of 128 bytes, all banks once
constexpr std::int32_t kMostBlocks = 4;    ///< of a chunk: the last one of a row is filled up with zeros
constexpr std::int32_t kMostSums = 128;    ///< a thread
constexpr std::int32_t kRegisterFile = 65536;
constexpr std::int32_t kMostRegisters = 255;  ///< a thread
constexpr std::int32_t kOtherRegisters = 56;  ///< a thread, besides sums and fragments
/// Likewise, where a chunk passes through registers, besides those: the addresses of its copies live as long.
/// So many that nothing is let through which NVRTC 13 spills for sm_75.
constexpr std::int32_t kOtherRegistersStaged = 88;

[[noreturn]] void refuse(const Config& config, const std::string& why) {
  throw Error(ErrorKind::invalid_argument, fmt::format("config '{}': {}", to_string(config), why));
}

bool within(std::int32_t value, std::int32_t low, std::int32_t high) { return value >= low && value <= high; }

/// The tile as the tensor cores see it.
struct TileGrid {
  std::int32_t out;  ///< tensor-core tiles along the outputs
  std::int32_t n;    ///< along the batch entries
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

/// Neighbouring outputs of a thread, where W is read by columns and its outputs are in their own order: as
/// many as make whole sectors of what a warp stores at once, 32 bytes of eight lanes (W as A) or of four.
std::int32_t run_by_columns(const WarpGrid& warps, const TileGrid& tile, const Spmm& problem, OperandA a) {
  const bool floats = problem.dtype == DType::f32;
  // Feature-major, what lies side by side are batch entries: outputs stay as they are.
  const bool exchanges = !floats && problem.out_dtype != DType::f32 && !problem.feature_major();
  if (a == OperandA::w) return floats || exchanges ? 2 : 1;
  if (tile.out / warps.out % 2 != 0) return 2;
  return floats || exchanges ? 4 : 2;
}

/// Neighbouring outputs of a thread: of as many tiles as its warp has, to 16 bytes.
std::int32_t run_of(const WarpGrid& warps, const TileGrid& tile, const Spmm& problem, OperandA a) {
  if (problem.by_columns()) return run_by_columns(warps, tile, problem, a);
  const DType out_dtype = problem.out_dtype;
  std::int32_t run = 2;
  while (run * 2 * static_cast<std::int32_t>(size_of(out_dtype)) <= 16 && tile.out / warps.out % run == 0)
    run *= 2;
  return run;
}

/// The grid of `warps` warps that reads the fewest fragments for its products; of equals, the one with the
/// longest runs of outputs. With Config::tile_out > 0 a warp has so many.
WarpGrid choose_warps(const Spmm& problem, const Config& config, const TileGrid& tile) {
  WarpGrid best;
  const auto cost = [&](const WarpGrid& warps) {
    return 64 * fragments_of(warps, tile, config.operand_a) - run_of(warps, tile, problem, config.operand_a);
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

}  // namespace

MmaShape mma_shape(const Spmm& problem, const Target& target, const Config& config) {
  const BlockShape block = problem.block;
  MmaShape shape;
  shape.async_copy = target.compute_capability() >= 80;
  const bool weight_a = config.operand_a == OperandA::w;
  const std::int32_t rows_n = weight_a ? kColumnsB : kRowsA;
  const std::int32_t rows_out = weight_a ? kRowsA : kColumnsB;
  const std::int32_t most_stages = shape.async_copy ? kMostStages : 2;
  const std::int32_t outputs = block.out * config.merge;
  if (problem.by_columns() && config.merge != 1)
    refuse(config,
           fmt::format("{} reads blocks by columns, which does not merge block rows; merge=1 would work",
                       name(problem.operation)));
  if (outputs % rows_out != 0)
    refuse(config,
           fmt::format("operand_a=w wants blocks of {} outputs or more, not {}; operand_a=x{} would work",
                       kRowsA, block.out, problem.by_columns() ? "" : " or merge=2"));
  if (!within(config.tile_n, rows_n, kMostTileN) || config.tile_n % rows_n != 0)
    refuse(config, fmt::format("tile_n is a multiple of {} up to {} with operand_a={}", rows_n, kMostTileN,
                               name(config.operand_a)));
  if (!within(config.warps, 1, kMostWarps)) refuse(config, fmt::format("warps is 1 to {}", kMostWarps));
  if (!within(config.stages, 1, most_stages))
    refuse(config, fmt::format("stages is 1 to {} for {}{}", most_stages, target.arch,
                               shape.async_copy ? "" : ", which has no asynchronous copy"));

  const TileGrid tile{outputs / rows_out, config.tile_n / rows_n};
  const WarpGrid warps = choose_warps(problem, config, tile);
  if (warps.out == 0)
    refuse(config,
           fmt::format("{} warps{} do not share out a tile of {} × {} tensor-core tiles (outputs × batch "
                       "entries); fewer warps, a larger tile_n or tile_out=0 (automatic) would work",
                       config.warps,
                       config.tile_out == 0 ? "" : fmt::format(" of {} outputs each", config.tile_out),
                       tile.out, tile.n));
  if (const std::int32_t tiles = tile.n / warps.n;
      problem.feature_major() && weight_a && problem.dtype == DType::f32 && tiles > 1 && tiles % 2 != 0)
    refuse(config,
           fmt::format("feature-major floats with operand_a=w are read in pairs of tiles, and a warp has "
                       "{}; operand_a=x or another tile_n would work",
                       tiles));
  shape.threads = 32 * config.warps;
  shape.warps_out = warps.out;
  shape.warps_n = warps.n;
  shape.run = run_of(warps, tile, problem, config.operand_a);
  const std::int32_t tiles = config.rows * problem.weights();  // of an item
  shape.sums = tiles * sums_of(warps, tile);
  const std::int32_t block_units = block.in * static_cast<std::int32_t>(size_of(problem.dtype)) / 16;
  const std::int64_t most_bytes = multiprocessor(target).shared_per_cta - kMmaStaticShared;
  shape.chunk_units = std::min(kLargestChunk, block_units * (tiles == 1 ? kMostBlocks : 1));
  if (shape.chunk_units < 2)
    refuse(config,
           fmt::format("{} multiplies block by block, and the {} inputs of one do not fill the tensor "
                       "core's k; {} would work",
                       config.rows > 1 ? fmt::format("rows={}", config.rows) : "a glu pair", block.in,
                       config.rows > 1 ? "rows=1" : "blocks of 16 inputs, or f32,"));
  const std::int32_t least_units = std::max(2, block_units / kMostParts);  // the tables count parts to there
  while (shape.chunk_units > least_units && shared_bytes(problem, config, shape.chunk_units) > most_bytes)
    shape.chunk_units /= 2;
  const auto registers_fit = [&] {
    const std::int32_t registers = shape.sums + fragments_of(warps, tile, config.operand_a) +
                                   held_registers(problem, config, shape) +
                                   (shape.async_copy ? kOtherRegisters : kOtherRegistersStaged);
    return registers <= kMostRegisters && registers * shape.threads <= kRegisterFile;
  };
  while (!shape.async_copy && shape.chunk_units > least_units && !registers_fit()) shape.chunk_units /= 2;
  if (shape.sums > kMostSums || !registers_fit())
    refuse(config,
           fmt::format("a thread would hold {} sums, more than the registers of {} threads have room for; "
                       "more warps or a smaller tile_n would work",
                       shape.sums, shape.threads));
  shape.shared_bytes = shared_bytes(problem, config, shape.chunk_units);
  if (shape.chunk_units > block_units)
    shape.chunk.blocks = shape.chunk_units / block_units;
  else
    shape.chunk.parts = block_units / shape.chunk_units;
  if (shape.shared_bytes > most_bytes)
    refuse(config,
           fmt::format("needs {} bytes of shared memory of {}; fewer stages or a smaller tile_n would work",
                       shape.shared_bytes, most_bytes));
  return shape;
}

}  // namespace sparsekiln::cuda
