#include "compiler/cuda/direct_shape.h"

#include <algorithm>
#include <bit>
#include <string>

#include <fmt/format.h>

#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/refusal.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kMostTileN = 64;
constexpr std::int32_t kMostWarps = 16;
constexpr std::int32_t kMostChunks = 2;  ///< of a warp under way
constexpr std::int32_t kMostThreadRegisters = 232;
constexpr std::int32_t kRegisterFile = 65536;
constexpr std::int32_t kOtherRegisters = 40;  ///< a thread, besides sums and chunks
constexpr std::int32_t kChunkRegisters = 6;   ///< of a chunk under way, besides its words

bool is_power(std::int32_t value, std::int32_t least, std::int32_t most) {
  return value >= least && value <= most && std::has_single_bit(static_cast<std::uint32_t>(value));
}

std::int32_t sums_of(const Spmm& problem, const Config& config) {
  return problem.block.out * config.tile_n / 32;
}

/// An estimate for one thread, near to what NVRTC 13 gives it: a chunk's addresses are more where its lanes
/// read several blocks, and words that are rounded have registers of their own.
std::int32_t registers_of(const Spmm& problem, const Config& config) {
  const std::int32_t words = (config.tile_n + problem.block.out) / 2;
  const bool several =
      problem.block.in * static_cast<std::int32_t>(size_of(problem.dtype)) < kDirectChunkBytes;
  const std::int32_t of_chunk = words + kChunkRegisters + (several ? 8 : 0);
  const std::int32_t rounded = problem.dtype == DType::f32 ? words : 0;
  return sums_of(problem, config) + kOtherRegisters + config.stages * of_chunk + rounded;
}

std::int64_t shared_bytes_of(const Spmm& problem, const Config& config) {
  constexpr std::int32_t kPadding = 4;  // floats after each row of sums, as templates/warp_sums.cuh has it
  return std::int64_t{4} * config.warps * config.tile_n * (problem.block.out + kPadding);
}

std::int64_t most_shared_bytes(const Target& target) {
  return multiprocessor(target).shared_per_cta - kDirectStaticShared;
}

/// For so many CTAs of a multiprocessor.
bool has_registers_for(const Spmm& problem, const Config& config, std::int32_t ctas) {
  const std::int32_t registers = registers_of(problem, config);
  return registers <= kMostThreadRegisters && registers * 32 * config.warps * ctas <= kRegisterFile;
}

}  // namespace

bool direct_fits(const Spmm& problem, const Target& target, const Config& config) {
  return has_registers_for(problem, config, std::max(config.split, 1)) &&
         shared_bytes_of(problem, config) <= most_shared_bytes(target);
}

DirectShape direct_shape(const Spmm& problem, const Target& target, const Config& config) {
  const BlockShape block = problem.block;
  const bool weight_a = config.operand_a == OperandA::w;
  if (config.rows != 1) refuse(config, "variant direct has no tile of x to share: rows=1 would work");
  if (config.merge != 1) refuse(config, "variant direct takes blocks one by one: merge=1 would work");
  if (config.tile_out != 0) refuse(config, "variant direct has all outputs of a block in a warp: tile_out=0");
  if (config.table == TableForm::unrolled)
    refuse(config, "the warps of variant direct share out the chunks; table=constant would work");
  const std::int32_t least_n = weight_a ? 8 : 16;
  if (!is_power(config.tile_n, least_n, kMostTileN))
    refuse(config, fmt::format("tile_n is a power of two from {} to {} here", least_n, kMostTileN));
  if (weight_a && block.out < 16)
    refuse(config,
           fmt::format("operand_a=w needs blocks of 16 outputs or more, not {}; operand_a=x would work",
                       block.out));
  if (!is_power(config.warps, 1, kMostWarps))
    refuse(config, fmt::format("warps is a power of two up to {}", kMostWarps));
  if (config.stages < 1 || config.stages > kMostChunks)
    refuse(config, fmt::format("stages, the chunks of a warp under way, is 1 or {}", kMostChunks));

  DirectShape shape;
  shape.threads = 32 * config.warps;
  shape.run = 4 / static_cast<std::int32_t>(size_of(problem.out_dtype));
  shape.sums = sums_of(problem, config);
  shape.registers = registers_of(problem, config);
  if (!has_registers_for(problem, config, 1))
    refuse(config,
           fmt::format("a thread would hold {} sums and {} words of operands, more than the registers "
                       "of {} threads hold; fewer warps, stages=1 or a smaller tile_n would work",
                       shape.sums, config.stages * (config.tile_n + block.out) / 2, shape.threads));
  const std::int32_t row_bytes = block.in * static_cast<std::int32_t>(size_of(problem.dtype));
  if (row_bytes < kDirectChunkBytes)
    shape.chunk.blocks = kDirectChunkBytes / row_bytes;
  else
    shape.chunk.parts = row_bytes / kDirectChunkBytes;
  shape.shared_bytes = shared_bytes_of(problem, config);
  if (const std::int64_t most_bytes = most_shared_bytes(target); shape.shared_bytes > most_bytes)
    refuse(config, fmt::format("needs {} bytes of shared memory of {}; fewer warps would work",
                               shape.shared_bytes, most_bytes));
  return shape;
}

}  // namespace sparsekiln::cuda
