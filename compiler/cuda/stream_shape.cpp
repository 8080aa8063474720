#include "compiler/cuda/stream_shape.h"

#include <bit>
#include <string>

#include <fmt/format.h>

#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/refusal.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kMostTileN = 32;
constexpr std::int32_t kMostWarps = 16;
constexpr std::int32_t kMostSums = 128;  ///< a thread
constexpr std::int32_t kRegisterFile = 65536;
constexpr std::int32_t kOtherRegisters = 72;  ///< a thread, besides sums and fragments

bool is_power(std::int32_t value, std::int32_t least, std::int32_t most) {
  return value >= least && value <= most && std::has_single_bit(static_cast<std::uint32_t>(value));
}

bool has_async_copy(const Target& target) { return target.compute_capability() >= 80; }

/// Accumulators of a thread.
std::int32_t sums_of(const Spmm& problem, const Config& config) {
  const std::int32_t sums =
      problem.block.out * config.tile_n;  // a warp's; on CUDA cores four lanes share one
  return problem.ieee() ? sums / 8 : sums / 32;
}

/// Registers that hold operands while they are multiplied.
std::int32_t fragments_of(const Spmm& problem, const Config& config) {
  if (problem.ieee()) return 4 * (config.tile_n + 1);
  return 8 + 4 * (config.operand_a == OperandA::w ? config.tile_n : problem.block.out) / 8;
}

bool fits_registers(const Spmm& problem, const Target& target, const Config& config) {
  const std::int32_t registers = stream_registers(problem, target, config);
  return sums_of(problem, config) <= kMostSums && registers <= kMostThreadRegisters &&
         registers * 32 * config.warps <= kRegisterFile;
}

/// Dynamic shared memory that a CTA may have.
std::int64_t most_shared_bytes(const Target& target) {
  return multiprocessor(target).shared_per_cta - kStreamStaticShared;
}

}  // namespace

std::int64_t stream_shared_bytes(const Spmm& problem, const Config& config) {
  constexpr std::int32_t kPadding = 4;  // floats after each row of sums, as templates/warp_sums.cuh has it
  const std::int64_t stage = std::int64_t{kStreamChunkBytes} * (config.tile_n + problem.block.out);
  const std::int64_t sums = std::int64_t{4} * config.tile_n * (problem.block.out + kPadding);
  return config.warps * (config.stages * stage + sums);
}

std::int32_t stream_registers(const Spmm& problem, const Target& target, const Config& config) {
  // Where there is no asynchronous copy, a chunk passes through registers while the one before is multiplied.
  const std::int32_t held = has_async_copy(target) ? 0 : 4 * (config.tile_n + problem.block.out) / 8;
  return sums_of(problem, config) + fragments_of(problem, config) + held + kOtherRegisters;
}

bool stream_fits(const Spmm& problem, const Target& target, const Config& config) {
  return fits_registers(problem, target, config) &&
         stream_shared_bytes(problem, config) <= most_shared_bytes(target);
}

StreamShape stream_shape(const Spmm& problem, const Target& target, const Config& config) {
  const BlockShape block = problem.block;
  StreamShape shape;
  shape.tensor_cores = !problem.ieee();
  shape.async_copy = has_async_copy(target);
  const bool weight_a = config.operand_a == OperandA::w;
  if (config.rows != 1) refuse(config, "variant stream has no tile of x to share: rows=1 would work");
  if (config.merge != 1) refuse(config, "variant stream takes blocks one by one: merge=1 would work");
  if (config.tile_out != 0) refuse(config, "variant stream has all outputs of a block in a warp: tile_out=0");
  if (config.table == TableForm::unrolled)
    refuse(config, "the warps of variant stream share out the chunks; table=constant would work");
  if (!shape.tensor_cores && weight_a)
    refuse(config, "math ieee has no tensor core to choose an operand of; leave operand_a out");
  const std::int32_t least_n = shape.tensor_cores && !weight_a ? 16 : 8;
  if (!is_power(config.tile_n, least_n, kMostTileN))
    refuse(config, fmt::format("tile_n is a power of two from {} to {} here", least_n, kMostTileN));
  if (weight_a && block.out < 16)
    refuse(config,
           fmt::format("operand_a=w needs blocks of 16 outputs or more, not {}; operand_a=x would work",
                       block.out));
  if (!is_power(config.warps, 1, kMostWarps))
    refuse(config, fmt::format("warps is a power of two up to {}", kMostWarps));
  if (config.stages < 2 || config.stages > kMostStreamStages)
    refuse(config, fmt::format("stages is 2 to {}", kMostStreamStages));

  shape.threads = 32 * config.warps;
  shape.run = 4 / static_cast<std::int32_t>(size_of(problem.out_dtype));
  shape.sums = sums_of(problem, config);
  if (!fits_registers(problem, target, config))
    refuse(config, fmt::format("a thread would hold {} sums, more than the registers of {} threads hold; "
                               "fewer warps or a smaller tile_n would work",
                               shape.sums, shape.threads));
  const std::int32_t row_bytes = block.in * static_cast<std::int32_t>(size_of(problem.dtype));
  if (row_bytes < kStreamChunkBytes)
    shape.chunk.blocks = kStreamChunkBytes / row_bytes;
  else
    shape.chunk.parts = row_bytes / kStreamChunkBytes;
  shape.shared_bytes = stream_shared_bytes(problem, config);
  if (const std::int64_t most_bytes = most_shared_bytes(target); shape.shared_bytes > most_bytes)
    refuse(config, fmt::format("needs {} bytes of shared memory of {}; fewer stages or warps would work",
                               shape.shared_bytes, most_bytes));
  return shape;
}

}  // namespace sparsekiln::cuda
