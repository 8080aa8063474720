#include "compiler/cuda/sddmm_simt.h"

#include <string>

#include <fmt/format.h>

#include "compiler/cuda/refusal.h"

namespace sparsekiln::cuda {
namespace {

void share_out(SddmmShape& shape, const Sddmm& gradient, const Config& config) {
  if (!is_power_of_two(config.tile_out, 4, 8))
    refuse(config, "tile_out is 4 or 8, the outputs and the inputs of one thread");
  const std::int32_t columns = run_inputs(gradient, config);
  shape.sums = config.tile_out * config.tile_out;
  const std::int32_t threads = gradient.block.out * columns / shape.sums;
  if (threads > shape.threads)
    refuse(config, fmt::format("{} threads have {} sums each of a run of {} x {}: {} would work",
                               shape.threads, shape.sums, gradient.block.out, columns,
                               threads <= 32 * kMostSddmmWarps ? fmt::format("warps={}", threads / 32)
                               : config.tile_out < 8           ? std::string("tile_out=8 and more warps")
                                                               : std::string("more warps, or fewer rows,")));
  // Feature-major entries are read by fours.
  const std::int32_t entries = shape.threads / threads * (gradient.feature_major() ? 4 : 1);
  if (config.tile_n % entries != 0)
    refuse(
        config,
        fmt::format("{} threads share {} batch rows: {} would work", shape.threads / threads, config.tile_n,
                    entries <= kMostSddmmChunk ? fmt::format("tile_n={}", entries)
                                               : std::string("fewer warps, or a smaller tile_out,")));
}

void validate(const Sddmm& gradient, const Target&) {
  if (!gradient.ieee())
    refuse(
        fmt::format("variant simt computes {} in f32 with math ieee, not {} with math {}; variant mma would "
                    "work",
                    name(gradient.operation), name(gradient.dtype), name(gradient.math)));
}

Instance instantiate(const Sddmm& gradient, const Target& target, const Config& config) {
  const SddmmShape shape = sddmm_simt_shape(gradient, target, config);
  Instance instance;
  instance.threads = shape.threads;
  instance.dynamic_shared_bytes = shape.shared_bytes;
  instance.declarations.number("tile_out", config.tile_out);
  instance.declarations.flag("copies_pairs", shape.static_bytes != 0, "to shared memory");
  return instance;
}

}  // namespace

SddmmShape sddmm_simt_shape(const Sddmm& gradient, const Target& target, const Config& config) {
  return sddmm_shape(gradient, target, config, share_out);
}

extern const SddmmFamily kSddmmSimt;
const SddmmFamily kSddmmSimt{Variant::simt, "sddmm_simt", Arithmetic::cuda_cores,
                             validate,      instantiate,  &kSddmmSimtTuning};

}  // namespace sparsekiln::cuda
