#include "compiler/cuda/simt_shape.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/tables.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kLargestChunk = 32;
constexpr std::int32_t kSmallestChunk = 8;
constexpr std::int32_t kPadding = 4;          ///< floats after each shared row, see TileCopy
constexpr std::int32_t kOtherRegisters = 40;  ///< a thread, besides sums: addresses, operands, counters
/// The most quads of a chunk that a thread holds in registers, where there is no asynchronous copy: with
/// their addresses, more of them spill (ptxas 13.0).
constexpr std::int32_t kMostHeldQuads = 12;

bool within(std::int32_t value, std::int32_t low, std::int32_t high) { return value >= low && value <= high; }

/// W's rows in a stage are its outputs, or its k's where it is read by columns; those of x its batch rows,
/// or k's where it is feature-major.
std::int64_t shared_bytes(const Spmm& problem, const Config& config, std::int32_t chunk) {
  const std::int32_t x =
      problem.feature_major() ? chunk * (config.tile_n + kPadding) : config.tile_n * (chunk + kPadding);
  const std::int32_t w =
      problem.by_columns() ? chunk * (problem.block.out + kPadding) : problem.block.out * (chunk + kPadding);
  const std::int32_t tiles_of_x = problem.derivative == Activation::none ? 1 : 2;  // z's beside it
  return std::int64_t{4} * config.stages * (tiles_of_x * x + w);
}

/// Units of 4 floats that a thread copies of a chunk, and holds where the copy is not asynchronous.
std::int32_t held_quads(const Spmm& problem, const Config& config, const SimtShape& shape) {
  if (shape.async_copy || config.stages == 1) return 0;
  const auto of_thread = [&](std::int32_t rows) {
    return (rows * shape.chunk / 4 + shape.threads - 1) / shape.threads;
  };
  const std::int32_t tiles_of_x = problem.derivative == Activation::none ? 1 : 2;
  return tiles_of_x * of_thread(config.tile_n) + of_thread(problem.block.out);
}

}  // namespace

bool simt_shares_out(const Spmm& problem, const Config& config) {
  const std::int32_t outputs = problem.block.out;
  const std::int32_t threads = 32 * config.warps;
  if (config.tile_out < 1 || outputs % config.tile_out != 0) return false;
  const std::int32_t threads_out = outputs / config.tile_out;
  return threads % threads_out == 0 && config.tile_n % (threads / threads_out) == 0;
}

SimtShape simt_shape(const Spmm& problem, const Target& target, const Config& config) {
  const BlockShape block = problem.block;
  SimtShape shape;
  // Elements of 8 bits become words on their way.
  shape.async_copy = target.compute_capability() >= 80 && size_of(problem.dtype) == 4;
  const std::int32_t most_stages = shape.async_copy ? 4 : 2;
  if (!within(config.tile_n, 8, 128) || config.tile_n % 8 != 0)
    refuse(config, "tile_n is a multiple of 8 from 8 to 128");
  if (!within(config.warps, 1, 32)) refuse(config, "warps is 1 to 32");
  if (!within(config.stages, 1, most_stages))
    refuse(config, fmt::format("stages is 1 to {} for {} of {}{}", most_stages, name(problem.dtype),
                               target.arch, shape.async_copy ? "" : ", where there is no asynchronous copy"));
  if (config.tile_out < 1 || block.out % config.tile_out != 0)
    refuse(config, fmt::format("tile_out divides the {} rows of a block, such as {}", block.out,
                               std::min(4, block.out)));
  shape.threads = 32 * config.warps;
  const std::int32_t threads_out = block.out / config.tile_out;
  const std::int32_t threads_n = shape.threads / threads_out;
  if (!simt_shares_out(problem, config))
    refuse(config,
           fmt::format("{} threads do not share out a tile of {} outputs × {} batch rows, {} outputs a "
                       "thread: threads × tile_out is a multiple of {} and divides {}",
                       shape.threads, block.out, config.tile_n, config.tile_out, block.out,
                       block.out * config.tile_n));
  shape.thread_n = config.tile_n / threads_n;
  const std::int32_t sums = config.rows * problem.weights() * shape.thread_n * config.tile_out;
  if (sums > 128 || (sums + kOtherRegisters) * shape.threads > kRegisterFile)
    refuse(config, fmt::format("a thread would hold {} sums, more than the registers of {} threads hold; "
                               "more warps or a smaller tile_n would work",
                               sums, shape.threads));
  shape.chunk = std::min(block.in, kLargestChunk);
  const std::int32_t least = std::max(kSmallestChunk, block.in / kMostParts);
  while (shape.chunk > least && (shared_bytes(problem, config, shape.chunk) > kSharedLimit ||
                                 held_quads(problem, config, shape) > kMostHeldQuads))
    shape.chunk /= 2;
  shape.shared_bytes = shared_bytes(problem, config, shape.chunk);
  if (shape.shared_bytes > kSharedLimit)
    refuse(config,
           fmt::format("needs {} bytes of shared memory of {}; fewer stages or a smaller tile_n would work",
                       shape.shared_bytes, kSharedLimit));
  return shape;
}

}  // namespace sparsekiln::cuda
