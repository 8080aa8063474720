#include "compiler/cuda/small_batch.h"

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/loop_tuning.h"
#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/types.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int64_t kPiece = 16;  ///< bytes of a row of x that a lane loads, or none of them

bool is_power(std::int32_t value, std::int32_t least, std::int32_t most) {
  return value >= least && value <= most && std::has_single_bit(static_cast<std::uint32_t>(value));
}

}  // namespace

void validate_small_batch(const Spmm& problem, const Target& target, Variant variant) {
  const std::string_view self = name(variant);
  const std::string_view instead = name(fallback_variant(problem, target));
  if (problem.feature_major())
    refuse(fmt::format(
        "variant {} reads batch-major activations, not {}; variant mma, or simt with f32, would work", self,
        name(problem.order)));
  if (!problem.ieee() && on_cuda_cores(problem, target))
    refuse(fmt::format("variant {} does not multiply {} in blocks of {} on {}; variant {} would work", self,
                       name(problem.dtype), to_string(problem.block), target.arch, instead));
  if (problem.cut_in * static_cast<std::int64_t>(size_of(problem.dtype)) % kPiece != 0)
    refuse(
        fmt::format("variant {} reads pieces of {} bytes, of which {} features of {} are no multiple; "
                    "variant {} would work",
                    self, kPiece, problem.cut_in, name(problem.dtype), instead));
  if (problem.alignment != 16)
    refuse(fmt::format(
        "variant {} reads activations that are aligned to 16 bytes, not {}; variant {} would work", self,
        problem.alignment, instead));
  if (!problem.ieee()) require_tensor_cores(problem, target);  // else by CUDA cores
  if (problem.gathers())
    refuse(fmt::format("variant {} computes linear layers, no convolutions; variant {} would work", self,
                       instead));
}

void validate_warp_tile(const Spmm& problem, const Config& config, std::int32_t most_n) {
  constexpr std::int32_t kMostWarps = 16;
  constexpr std::int32_t kLeastOutputs = 8;
  const std::string_view self = name(config.variant);
  const bool weight_a = config.operand_a == OperandA::w;
  if (config.rows != 1)
    refuse(config, fmt::format("variant {} has no tile of x to share: rows=1 would work", self));
  if (config.merge != 1)
    refuse(config, fmt::format("variant {} takes blocks one by one: merge=1 would work", self));
  if (config.table == TableForm::unrolled)
    refuse(config,
           fmt::format("the warps of variant {} share out the chunks; table=constant would work", self));
  const std::int32_t least_n = problem.ieee() || weight_a ? 8 : 16;
  if (!is_power(config.tile_n, least_n, most_n))
    refuse(config, fmt::format("tile_n is a power of two from {} to {} here", least_n, most_n));
  if (config.tile_out != 0 && !is_power(config.tile_out, kLeastOutputs, problem.block.out))
    refuse(config, fmt::format("tile_out, the outputs of a warp, is 0 or a power of two from {} to {}",
                               kLeastOutputs, problem.block.out));
  if (weight_a && warp_outputs(problem, config) < 16)
    refuse(config, fmt::format("operand_a=w needs 16 outputs of a warp or more, not {}; {} would work",
                               warp_outputs(problem, config),
                               problem.block.out >= 16 ? "tile_out=16" : "operand_a=x with tile_n=16"));
  if (!is_power(config.warps, 1, kMostWarps))
    refuse(config, fmt::format("warps is a power of two up to {}", kMostWarps));
  if (const std::int32_t shares = warp_shares(problem, config); config.warps % shares != 0)
    refuse(config,
           fmt::format("{} warps do not share out {} outputs of {}; {} would work", config.warps,
                       problem.block.out,
                       problem.weights() == 1 ? "a weight" : fmt::format("{} weights", problem.weights()),
                       shares <= kMostWarps ? fmt::format("warps={}", shares) : "a larger tile_out"));
}

std::int32_t warp_outputs(const Spmm& problem, const Config& config) {
  return config.tile_out != 0 ? config.tile_out : problem.block.out;
}

std::int32_t warp_shares(const Spmm& problem, const Config& config) {
  return problem.weights() * (problem.block.out / warp_outputs(problem, config));
}

const char* warp_rejection(const Spmm& problem, const Target& target, const Config& config) {
  if (!problem.ieee() && on_cuda_cores(problem, target)) return kOtherArithmetic;
  if (problem.ieee() && config.operand_a == OperandA::w) return "CUDA cores have no operand to choose";
  if (!problem.ieee() && config.operand_a == OperandA::x && config.tile_n % 16 != 0) return kRowsOfA;
  if (config.operand_a == OperandA::w && warp_outputs(problem, config) < 16)
    return "the rows of a tensor core's A are 16 outputs";
  if (config.tile_out >= problem.block.out) return "a warp has all outputs of a block: tile_out=0 says so";
  if (config.warps % warp_shares(problem, config) != 0)
    return "warps do not share out the outputs of a block evenly";
  return nullptr;
}

ChunkShape warp_chunk(const Spmm& problem, const Config& config) {
  const std::int32_t row_bytes = problem.block.in * static_cast<std::int32_t>(size_of(problem.dtype));
  ChunkShape chunk;
  if (row_bytes < kWarpChunkBytes)
    chunk.blocks = kWarpChunkBytes / row_bytes;
  else
    chunk.parts = row_bytes / kWarpChunkBytes;
  chunk.shares = warp_shares(problem, config);
  return chunk;
}

std::int32_t warp_run(const Spmm& problem, const Config& config) {
  const auto bytes = static_cast<std::int32_t>(size_of(problem.out_dtype));
  // A cell has so much besides its sums that a thread has few of them at once.
  const std::int32_t most =
      problem.epilogue.lstm ? 4 / bytes : std::min(16 / bytes, warp_outputs(problem, config));
  std::int32_t run = 4 / bytes;
  while (run * 2 <= most && run * 2 * 32 * config.warps <= problem.block.out * config.tile_n) run *= 2;
  return run;
}

std::int32_t gathered_outputs(const Spmm& problem, const Config& config) {
  return std::max(problem.block.out * config.tile_n / 32, warp_run(problem, config));
}

std::int64_t warp_sums_bytes(const Spmm& problem, const Config& config) {
  constexpr std::int32_t kPadding = 4;  // floats after each row of sums, as templates/warp_sums.cuh has it
  return std::int64_t{4} * config.warps * config.tile_n * (warp_outputs(problem, config) + kPadding);
}

std::int64_t most_dynamic_shared(const Target& target) {
  return multiprocessor(target).shared_per_cta - kWarpStaticShared;
}

}  // namespace sparsekiln::cuda
