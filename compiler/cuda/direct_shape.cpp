#include "compiler/cuda/direct_shape.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/small_batch.h"
#include "compiler/element.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kMostTileN = 64;
constexpr std::int32_t kMostChunks = 2;  ///< of a warp under way
constexpr std::int32_t kMostThreadRegisters = 232;

/// A thread's registers besides sums and chunks.
constexpr std::int32_t kOtherRegisters = 32;
// And those of what not all problems have, as NVRTC 13 spills without them.
constexpr std::int32_t kBlockRegisters = 6;        ///< lanes load different blocks
constexpr std::int32_t kRoundingRegisters = 8;     ///< words are rounded
constexpr std::int32_t kSliceRegisters = 4;        ///< a warp has some of a block's outputs
constexpr std::int32_t kBlockScaleRegisters = 32;  ///< words are scaled
constexpr std::int32_t kCutRegisters = 8;          ///< the last block column is cut
constexpr std::int32_t kColumnRegisters = 40;      ///< W is read by columns
constexpr std::int32_t kPairRegisters = 8;         ///< two weights
constexpr std::int32_t kCellRegisters = 48;        ///< sums become cells of an LSTM
constexpr std::int32_t kFloat8Registers = 104;  ///< products are added apart, on sm_90 of operands of 16 bits

/// CTAs of a multiprocessor. Where the layout decides how many it is given, as many as have sixteen warps.
std::int32_t ctas_of(const Config& config) {
  constexpr std::int32_t kWarps = 16;
  return config.split == kDerivedSplit ? std::max(kWarps / config.warps, 1) : config.split;
}

std::int32_t sums_of(const Spmm& problem, const Config& config) {
  return warp_outputs(problem, config) * config.tile_n / 32;
}

/// Words of operands that a thread holds: of x, of z where dy is multiplied by the derivative there, and of
/// W.
std::int32_t words_of(const Spmm& problem, const Config& config) {
  const std::int32_t rows = config.tile_n * (problem.derivative == Activation::none ? 1 : 2);
  return config.stages * (rows + warp_outputs(problem, config)) / 2;
}

/// What one thread needs at least.
std::int32_t least_registers(const Spmm& problem, const Config& config) {
  return sums_of(problem, config) + words_of(problem, config) + kOtherRegisters +
         (warp_chunk(problem, config).blocks > 1 ? kBlockRegisters : 0) +
         (problem.dtype == DType::f32 ? kRoundingRegisters : 0);
}

/// What it needs so that nothing is spilled.
std::int32_t registers_of(const Spmm& problem, const Config& config) {
  return least_registers(problem, config) +
         (warp_outputs(problem, config) < problem.block.out ? kSliceRegisters : 0) +
         (problem.block_scales ? kBlockScaleRegisters : 0) + (problem.cut_in != 0 ? kCutRegisters : 0) +
         (problem.by_columns() ? kColumnRegisters : 0) + (problem.epilogue.glu ? kPairRegisters : 0) +
         (problem.epilogue.lstm ? kCellRegisters : 0) + (is_float8(problem.dtype) ? kFloat8Registers : 0);
}

/// CTAs of a multiprocessor that there are threads, and so many registers for each of them.
std::int32_t room_of(std::int32_t registers, const Target& target, const Config& config) {
  constexpr std::int32_t kUnit = 8;  // a warp is given 32 times as many
  if (registers > kMostThreadRegisters) return 0;
  const std::int32_t given = (registers + kUnit - 1) / kUnit * kUnit;
  const std::int32_t threads = 32 * config.warps;
  const Multiprocessor figures = multiprocessor(target);
  return std::min({kRegisterFile / (given * threads), figures.threads / threads, figures.ctas});
}

}  // namespace

bool direct_fits(const Spmm& problem, const Target& target, const Config& config) {
  return ctas_of(config) <= room_of(registers_of(problem, config), target, config) &&
         warp_sums_bytes(problem, config) <= most_dynamic_shared(target);
}

DirectShape direct_shape(const Spmm& problem, const Target& target, const Config& config) {
  validate_warp_tile(problem, config, kMostTileN);
  if (config.stages < 1 || config.stages > kMostChunks)
    refuse(config, fmt::format("stages, the chunks of a warp under way, is 1 or {}", kMostChunks));
  if (config.knobs[0] > 1) refuse(config, "panels is 0 or 1");
  if (has_panels(config) && problem.correlation)
    refuse(config, "panels are of the batch rows of a linear layer; panels=0 would work");
  if (has_panels(config) && problem.derivative != Activation::none)
    refuse(config, "panels hold x, not z; panels=0 would work");

  DirectShape shape;
  shape.threads = 32 * config.warps;
  // More may be asked for: then some of them wait, or registers are spilled.
  const std::int32_t room = room_of(registers_of(problem, config), target, config);
  shape.ctas = std::clamp(ctas_of(config), 1, std::max(room, 1));
  shape.run = warp_run(problem, config);
  shape.sums = sums_of(problem, config);
  shape.registers = registers_of(problem, config);
  if (room_of(least_registers(problem, config), target, config) == 0)
    refuse(
        config,
        fmt::format("a thread would hold {} sums and {} words of operands, more than the registers "
                    "of {} threads hold; fewer warps, stages=1, or a smaller tile_n or tile_out would work",
                    shape.sums, words_of(problem, config), shape.threads));
  shape.chunk = warp_chunk(problem, config);
  shape.shared_bytes = warp_sums_bytes(problem, config);
  if (const std::int64_t most_bytes = most_dynamic_shared(target); shape.shared_bytes > most_bytes)
    refuse(config, fmt::format("needs {} bytes of shared memory of {}; fewer warps would work",
                               shape.shared_bytes, most_bytes));
  return shape;
}

}  // namespace sparsekiln::cuda
