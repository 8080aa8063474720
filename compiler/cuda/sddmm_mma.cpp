#include "compiler/cuda/sddmm_mma.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "compiler/cuda/refusal.h"
#include "compiler/cuda/types.h"

namespace sparsekiln::cuda {
namespace {

/// A warp's outputs and inputs: what a fragment is used for grows with them, and so do its registers.
constexpr std::int32_t kWarpOut = 32;
constexpr std::int32_t kWarpIn = 32;

/// Warps over the outputs first, then over the inputs, as long as each has enough of them; what is left
/// shares the k-steps of a stage.
void share_out(SddmmShape& shape, const Sddmm& gradient, const Config& config) {
  if (config.tile_out != 0) refuse(config, "tile_out is 0: variant mma shares out its warps by itself");
  const std::int32_t columns = run_inputs(gradient, config);
  const std::int32_t step = 32 / static_cast<std::int32_t>(size_of(gradient.dtype));  // batch rows
  shape.warps_out = std::min(config.warps, std::max(gradient.block.out / kWarpOut, 1));
  shape.warps_in = std::min(config.warps / shape.warps_out, std::max(columns / kWarpIn, 1));
  shape.warps_n = config.warps / shape.warps_out / shape.warps_in;
  shape.sums = std::max(gradient.block.out, 16) * columns / (32 * shape.warps_out * shape.warps_in);
  const std::int32_t steps = step * shape.warps_n;  // batch rows of a k-step of each warp
  if (config.tile_n % steps != 0)
    refuse(
        config,
        fmt::format("{} warps share the k-steps of {} batch rows in a stage: {}fewer warps would work",
                    shape.warps_n, step, steps > kMostSddmmChunk ? "" : fmt::format("tile_n={} or ", steps)));
}

void validate(const Sddmm& gradient, const Target& target) { require_mma(gradient, target); }

Instance instantiate(const Sddmm& gradient, const Target& target, const Config& config) {
  const SddmmShape shape = sddmm_mma_shape(gradient, target, config);
  Instance instance;
  instance.threads = shape.threads;
  instance.dynamic_shared_bytes = shape.shared_bytes;
  Declarations& members = instance.declarations;
  members.type("Product", fmt::format("sparsekiln::{}", product_of(gradient.dtype)));
  members.number("warps_out", shape.warps_out);
  members.number("warps_in", shape.warps_in);
  members.number("warps_n", shape.warps_n);
  members.flag("copies_pairs", shape.static_bytes != 0, "to shared memory");
  return instance;
}

}  // namespace

SddmmShape sddmm_mma_shape(const Sddmm& gradient, const Target& target, const Config& config) {
  return sddmm_shape(gradient, target, config, share_out);
}

extern const SddmmFamily kSddmmMma;
const SddmmFamily kSddmmMma{Variant::mma, "sddmm_mma", Arithmetic::tensor_cores,
                            validate,     instantiate, &kSddmmMmaTuning};

}  // namespace sparsekiln::cuda
