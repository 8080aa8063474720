#include "compiler/cuda/sddmm_wgmma.h"

#include <string>

#include <fmt/format.h>

#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/sddmm_shape.h"
#include "compiler/cuda/wgmma_problem.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kMostStages = 8;
constexpr std::int32_t kOutputs = 64;       ///< of a wgmma
constexpr std::int32_t kLeastColumns = 64;  ///< of a wgmma here
constexpr std::int32_t kMostColumns = 256;
constexpr std::int32_t kLineBytes = 128;   ///< of a row of a stage
constexpr std::int64_t kBiasBytes = 2048;  ///< where sums of dy meet

void check_numbers(const Config& config) {
  if (config.tile_n != 64 && config.tile_n != 128)
    refuse(config, "tile_n, the batch rows of a stage, is 64 or 128 here");
  if (config.warps != kWgmmaWarps)
    refuse(config, fmt::format("variant wgmma has three warpgroups: warps={} would work", kWgmmaWarps));
  if (config.stages < 2 || config.stages > kMostStages)
    refuse(config, fmt::format("stages is 2 to {}", kMostStages));
  if (!is_power_of_two(config.rows, 1, 8)) refuse(config, "rows, the blocks of a run, is 1, 2, 4 or 8");
  if (config.tile_out != 0) refuse(config, "variant wgmma shares out a run by itself: tile_out=0 would work");
}

void validate(const Sddmm& gradient, const Target& target) {
  require_wgmma(gradient, gradient.block, target);
  require_wgmma(gradient.dtype == DType::f16 || gradient.dtype == DType::bf16,
                fmt::format("wgmma transposes operands of 16 bits, not {}", name(gradient.dtype)));
  require_wgmma(gradient.cut_in == 0 && gradient.cut_out == 0,
                fmt::format("variant wgmma reads whole blocks of features, not {} and {} of them",
                            gradient.in_features(), gradient.out_features()));
}

/// x and dy of each pair in turn, in boxes of a stage's batch rows and 128 bytes of their features.
std::vector<TensorMap> tensor_maps(const Sddmm& gradient, const Config& config) {
  const auto map_of = [&](Argument operand, std::int64_t features, std::size_t pair) {
    return TensorMap{.operand = operand,
                     .type = gradient.dtype,
                     .row_length = features,
                     .box_length = kLineBytes / static_cast<std::int32_t>(size_of(gradient.dtype)),
                     .box_rows = config.tile_n,
                     .swizzle_bytes = kLineBytes,
                     .pair = static_cast<std::int32_t>(pair)};
  };
  std::vector<TensorMap> maps;
  for (std::size_t pair = 0; pair < kMostPairs; ++pair) {
    maps.push_back(map_of(Argument::pair_x, gradient.in_features(), pair));
    maps.push_back(map_of(Argument::pair_dy, gradient.out_features(), pair));
  }
  return maps;
}

Instance instantiate(const Sddmm& gradient, const Target& target, const Config& config) {
  const SddmmWgmmaShape shape = sddmm_wgmma_shape(gradient, target, config);
  Instance instance;
  instance.threads = shape.threads;
  instance.dynamic_shared_bytes = static_cast<std::int32_t>(shape.shared_bytes);
  instance.tensor_maps = tensor_maps(gradient, config);
  Declarations& members = instance.declarations;
  members.number("interleave", shape.interleave, "neighboring inputs of a thread");
  members.number("operands", wgmma_operands_of(gradient.dtype), "ptx::WgmmaOperands");
  return instance;
}

}  // namespace

SddmmWgmmaShape sddmm_wgmma_shape(const Sddmm& gradient, const Target& target, const Config& config) {
  check_numbers(config);
  const std::int32_t inputs = run_inputs(gradient, config);
  SddmmWgmmaShape shape;
  shape.warpgroups_out = gradient.block.out / kOutputs;
  shape.columns = inputs * shape.warpgroups_out / 2;
  shape.interleave = 8 / static_cast<std::int32_t>(size_of(gradient.out_dtype));
  if (shape.columns < kLeastColumns)
    refuse(config, fmt::format("two warpgroups share the {} inputs of a run, {} at least each: rows={} would "
                               "work",
                               inputs, kLeastColumns, 2 * config.rows));
  if (shape.columns > kMostColumns)
    refuse(config, fmt::format("a warpgroup has up to {} inputs of a run, not {}: rows={} would work",
                               kMostColumns, shape.columns, config.rows * kMostColumns / shape.columns));
  shape.sums = kOutputs * shape.columns / 128;
  shape.static_bytes = kWgmmaStaticShared + (gradient.bias_gradient ? kBiasBytes : 0);
  shape.stage_bytes = std::int64_t{config.tile_n} * (gradient.block.out + inputs) *
                      static_cast<std::int64_t>(size_of(gradient.dtype));
  shape.shared_bytes = config.stages * shape.stage_bytes;
  const std::int64_t most = multiprocessor(target).shared_per_cta - shape.static_bytes;
  if (shape.shared_bytes > most)
    refuse(config,
           fmt::format("needs {} bytes of shared memory of {}; fewer stages, or a smaller tile_n, would work",
                       shape.shared_bytes, most));
  return shape;
}

extern const SddmmFamily kSddmmWgmma;
const SddmmFamily kSddmmWgmma{Variant::wgmma, "sddmm_wgmma", Arithmetic::tensor_cores,
                              validate,       instantiate,   &kSddmmWgmmaTuning,
                              "sm_90a"};

}  // namespace sparsekiln::cuda
