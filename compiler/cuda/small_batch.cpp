#include "compiler/cuda/small_batch.h"

#include <bit>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/types.h"

namespace sparsekiln::cuda {
namespace {

bool is_power(std::int32_t value, std::int32_t least, std::int32_t most) {
  return value >= least && value <= most && std::has_single_bit(static_cast<std::uint32_t>(value));
}

}  // namespace

void validate_small_batch(const Spmm& problem, const Target& target, Variant variant) {
  const std::string_view self = name(variant);
  const std::string_view instead = name(fallback_variant(problem, target));
  if (problem.weights() > 1)
    refuse(fmt::format("variant {} multiplies with one weight, and epilogue {} has {}; variant {} would work",
                       self, to_string(problem.epilogue), problem.weights(), instead));
  if (problem.by_columns())
    refuse(fmt::format("variant {} computes forward, not {}; variant mma, or simt with f32, would work", self,
                       name(problem.operation)));
  if (problem.feature_major())
    refuse(fmt::format(
        "variant {} reads batch-major activations, not {}; variant mma, or simt with f32, would work", self,
        name(problem.order)));
  if (operand_of(problem.dtype).empty())
    refuse(fmt::format("variant {} does not read {}; variant {} would work", self, name(problem.dtype),
                       instead));
  if (problem.cut_in != 0 || problem.cut_out != 0)
    refuse(fmt::format("variant {} computes whole blocks, not {} to {} features; variant {} would work", self,
                       problem.in_features(), problem.out_features(), instead));
  if (problem.alignment != 16)
    refuse(fmt::format(
        "variant {} reads activations that are aligned to 16 bytes, not {}; variant {} would work", self,
        problem.alignment, instead));
  if (problem.gates) refuse(fmt::format("variant {} has no gates; variant {} would work", self, instead));
  if (!problem.ieee()) require_tensor_cores(problem, target);  // else by CUDA cores
  if (problem.gathers())
    refuse(fmt::format("variant {} computes linear layers, no convolutions; variant {} would work", self,
                       instead));
}

void validate_warp_tile(const Spmm& problem, const Config& config, std::int32_t most_n) {
  constexpr std::int32_t kMostWarps = 16;
  const std::string_view self = name(config.variant);
  const bool weight_a = config.operand_a == OperandA::w;
  if (config.rows != 1)
    refuse(config, fmt::format("variant {} has no tile of x to share: rows=1 would work", self));
  if (config.merge != 1)
    refuse(config, fmt::format("variant {} takes blocks one by one: merge=1 would work", self));
  if (config.tile_out != 0)
    refuse(config, fmt::format("variant {} has all outputs of a block in a warp: tile_out=0", self));
  if (config.table == TableForm::unrolled)
    refuse(config,
           fmt::format("the warps of variant {} share out the chunks; table=constant would work", self));
  const std::int32_t least_n = problem.ieee() || weight_a ? 8 : 16;
  if (!is_power(config.tile_n, least_n, most_n))
    refuse(config, fmt::format("tile_n is a power of two from {} to {} here", least_n, most_n));
  if (weight_a && problem.block.out < 16)
    refuse(config,
           fmt::format("operand_a=w needs blocks of 16 outputs or more, not {}; operand_a=x would work",
                       problem.block.out));
  if (!is_power(config.warps, 1, kMostWarps))
    refuse(config, fmt::format("warps is a power of two up to {}", kMostWarps));
}

ChunkShape warp_chunk(const Spmm& problem) {
  const std::int32_t row_bytes = problem.block.in * static_cast<std::int32_t>(size_of(problem.dtype));
  ChunkShape chunk;
  if (row_bytes < kWarpChunkBytes)
    chunk.blocks = kWarpChunkBytes / row_bytes;
  else
    chunk.parts = row_bytes / kWarpChunkBytes;
  return chunk;
}

std::int64_t warp_sums_bytes(const Spmm& problem, const Config& config) {
  constexpr std::int32_t kPadding = 4;  // floats after each row of sums, as templates/warp_sums.cuh has it
  return std::int64_t{4} * config.warps * config.tile_n * (problem.block.out + kPadding);
}

std::int64_t most_dynamic_shared(const Target& target) {
  return multiprocessor(target).shared_per_cta - kWarpStaticShared;
}

}  // namespace sparsekiln::cuda
