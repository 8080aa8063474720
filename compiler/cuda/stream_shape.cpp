#include "compiler/cuda/stream_shape.h"

#include <string>

#include <fmt/format.h>

#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/small_batch.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kMostTileN = 32;
constexpr std::int32_t kMostSums = 128;       ///< a thread
constexpr std::int32_t kOtherRegisters = 72;  ///< a thread, besides sums and fragments

bool has_async_copy(const Target& target) { return target.compute_capability() >= 80; }

/// Accumulators of a thread.
std::int32_t sums_of(const Spmm& problem, const Config& config) {
  // A warp's; on CUDA cores four lanes share one.
  const std::int32_t sums = warp_outputs(problem, config) * config.tile_n;
  return problem.ieee() ? sums / 8 : sums / 32;
}

/// Registers that hold operands while they are multiplied.
std::int32_t fragments_of(const Spmm& problem, const Config& config) {
  if (problem.ieee()) return 4 * (config.tile_n + 1);
  return 8 + 4 * (config.operand_a == OperandA::w ? config.tile_n : warp_outputs(problem, config)) / 8;
}

bool fits_registers(const Spmm& problem, const Target& target, const Config& config) {
  const std::int32_t registers = stream_registers(problem, target, config);
  return sums_of(problem, config) <= kMostSums && registers <= kMostThreadRegisters &&
         registers * 32 * config.warps <= kRegisterFile;
}

}  // namespace

std::int64_t stream_shared_bytes(const Spmm& problem, const Config& config) {
  const std::int64_t stage = std::int64_t{kWarpChunkBytes} * (config.tile_n + warp_outputs(problem, config));
  return config.warps * config.stages * stage + warp_sums_bytes(problem, config);
}

std::int32_t stream_registers(const Spmm& problem, const Target& target, const Config& config) {
  // Where there is no asynchronous copy, a chunk passes through registers while the one before is multiplied.
  const std::int32_t held =
      has_async_copy(target) ? 0 : 4 * (config.tile_n + warp_outputs(problem, config)) / 8;
  return sums_of(problem, config) + fragments_of(problem, config) + held + kOtherRegisters;
}

bool stream_fits(const Spmm& problem, const Target& target, const Config& config) {
  return fits_registers(problem, target, config) &&
         stream_shared_bytes(problem, config) <= most_dynamic_shared(target);
}

StreamShape stream_shape(const Spmm& problem, const Target& target, const Config& config) {
  StreamShape shape;
  shape.tensor_cores = !problem.ieee();
  shape.async_copy = has_async_copy(target);
  if (!shape.tensor_cores && config.operand_a == OperandA::w)
    refuse(config, "math ieee has no tensor core to choose an operand of; leave operand_a out");
  validate_warp_tile(problem, config, kMostTileN);
  if (config.stages < 2 || config.stages > kMostStreamStages)
    refuse(config, fmt::format("stages is 2 to {}", kMostStreamStages));

  shape.threads = 32 * config.warps;
  shape.run = warp_run(problem, config);
  shape.sums = sums_of(problem, config);
  if (!fits_registers(problem, target, config))
    refuse(config, fmt::format("a thread would hold {} sums, more than the registers of {} threads hold; "
                               "fewer warps or a smaller tile_n would work",
                               shape.sums, shape.threads));
  shape.chunk = warp_chunk(problem, config);
  shape.shared_bytes = stream_shared_bytes(problem, config);
  if (const std::int64_t most_bytes = most_dynamic_shared(target); shape.shared_bytes > most_bytes)
    refuse(config, fmt::format("needs {} bytes of shared memory of {}; fewer stages or warps would work",
                               shape.shared_bytes, most_bytes));
  return shape;
}

}  // namespace sparsekiln::cuda
