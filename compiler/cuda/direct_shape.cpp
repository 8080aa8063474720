#include "compiler/cuda/direct_shape.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/small_batch.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kMostTileN = 64;
constexpr std::int32_t kMostChunks = 2;  ///< of a warp under way
constexpr std::int32_t kMostThreadRegisters = 232;

// A thread, besides sums and chunks: always, where lanes load different blocks, and where words are rounded.
constexpr std::int32_t kOtherRegisters = 32;
constexpr std::int32_t kBlockRegisters = 6;
constexpr std::int32_t kRoundingRegisters = 8;

/// CTAs of a multiprocessor. Where the layout decides how many it is given, as many as have sixteen warps.
std::int32_t ctas_of(const Config& config) {
  constexpr std::int32_t kWarps = 16;
  return config.split == kDerivedSplit ? std::max(kWarps / config.warps, 1) : config.split;
}

std::int32_t sums_of(const Spmm& problem, const Config& config) {
  return problem.block.out * config.tile_n / 32;
}

/// What one thread needs so that nothing is spilled, as NVRTC 13 spills.
std::int32_t registers_of(const Spmm& problem, const Config& config) {
  const std::int32_t words = (config.tile_n + problem.block.out) / 2;
  return sums_of(problem, config) + config.stages * words + kOtherRegisters +
         (warp_chunk(problem).blocks > 1 ? kBlockRegisters : 0) +
         (problem.dtype == DType::f32 ? kRoundingRegisters : 0);
}

/// CTAs of a multiprocessor that there are registers and threads for.
std::int32_t room_of(const Spmm& problem, const Target& target, const Config& config) {
  constexpr std::int32_t kUnit = 8;  // a warp is given 32 times as many
  const std::int32_t registers = registers_of(problem, config);
  if (registers > kMostThreadRegisters) return 0;
  const std::int32_t given = (registers + kUnit - 1) / kUnit * kUnit;
  const std::int32_t threads = 32 * config.warps;
  const Multiprocessor figures = multiprocessor(target);
  return std::min({kRegisterFile / (given * threads), figures.threads / threads, figures.ctas});
}

}  // namespace

bool direct_fits(const Spmm& problem, const Target& target, const Config& config) {
  return ctas_of(config) <= room_of(problem, target, config) &&
         warp_sums_bytes(problem, config) <= most_dynamic_shared(target);
}

DirectShape direct_shape(const Spmm& problem, const Target& target, const Config& config) {
  validate_warp_tile(problem, config, kMostTileN);
  if (config.stages < 1 || config.stages > kMostChunks)
    refuse(config, fmt::format("stages, the chunks of a warp under way, is 1 or {}", kMostChunks));

  DirectShape shape;
  shape.threads = 32 * config.warps;
  // More may be asked for: then some of them wait.
  const std::int32_t room = room_of(problem, target, config);
  shape.ctas = std::min(ctas_of(config), room);
  shape.run = 4 / static_cast<std::int32_t>(size_of(problem.out_dtype));
  shape.sums = sums_of(problem, config);
  shape.registers = registers_of(problem, config);
  if (room == 0)
    refuse(config,
           fmt::format("a thread would hold {} sums and {} words of operands, more than the registers "
                       "of {} threads hold; fewer warps, stages=1 or a smaller tile_n would work",
                       shape.sums, config.stages * (config.tile_n + problem.block.out) / 2, shape.threads));
  shape.chunk = warp_chunk(problem);
  shape.shared_bytes = warp_sums_bytes(problem, config);
  if (const std::int64_t most_bytes = most_dynamic_shared(target); shape.shared_bytes > most_bytes)
    refuse(config, fmt::format("needs {} bytes of shared memory of {}; fewer warps would work",
                               shape.shared_bytes, most_bytes));
  return shape;
}

}  // namespace sparsekiln::cuda
