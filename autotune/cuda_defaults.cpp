#include "autotune/cuda_defaults.h"

#include <algorithm>

#include "compiler/cuda/mma_shape.h"
#include "compiler/cuda/multiprocessor.h"
#include "compiler/cuda/sddmm_shape.h"
#include "compiler/cuda/simt_shape.h"
#include "compiler/cuda/stream_shape.h"

namespace sparsekiln::cuda {
namespace {

/// The smallest power of two from `least` to `most` that holds n.
std::int32_t tile_for(std::int64_t n, std::int32_t least, std::int32_t most) {
  std::int32_t tile = least;
  while (tile < most && tile < n) tile *= 2;
  return tile;
}

/// 4 × 4 sums a thread where the tile is large enough for at least a warp of such threads: each operand read
/// from shared memory then serves four multiply-adds.
Config default_simt(const Spmm& problem, const Target& target, std::int64_t n) {
  constexpr std::int32_t kSums = 16;
  constexpr std::int32_t kMostThreads = 256;
  Config config;
  config.tile_n = tile_for(n, 8, 64);
  const std::int32_t outputs = problem.block.out * config.tile_n;
  const std::int32_t threads = std::clamp(outputs / kSums, 32, kMostThreads);
  config.warps = threads / 32;
  config.tile_out = std::min(outputs / threads, 4);
  config.stages = 2;
  config.split = 2;  // two CTAs a multiprocessor hide each other's barriers
  const SimtShape shape = simt_shape(problem, target, config);
  config.split =
      std::clamp(resident_ctas(target, shape.threads, shape.shared_bytes + kSimtFlagBytes), 1, config.split);
  return config;
}

/// n rounded up to a multiple.
std::int32_t round_up(std::int64_t n, std::int32_t multiple) {
  return static_cast<std::int32_t>((n + multiple - 1) / multiple) * multiple;
}

/// The tile and the operand that compute the fewest batch entries that are not there: to 64 of them, one tile
/// in steps of 16 rows, or of 8 columns where a block has the 16 outputs that fill A.
void choose_tile(Config& config, const Spmm& problem, std::int64_t n) {
  constexpr std::int64_t kOneTile = 64;
  constexpr std::int64_t kLargeBatch = 512;
  // Feature-major floats come to B in pairs of tiles, of which a warp may have an odd number.
  const bool fills_a = problem.block.out >= 16 && !(problem.feature_major() && problem.dtype == DType::f32);
  if (n > kOneTile) {
    config.tile_n = n >= kLargeBatch ? 128 : 64;
    return;
  }
  const std::int64_t entries = std::max<std::int64_t>(n, 1);
  config.tile_n = round_up(entries, 16);
  if (!fills_a || round_up(entries, 8) == config.tile_n) return;
  config.operand_a = OperandA::w;
  config.tile_n = round_up(entries, 8);
}

/// Tensor-core tiles of a config, 16 × 8.
std::int32_t tiles_of(const Spmm& problem, const Config& config) {
  return problem.block.out * config.tile_n / 128;
}

/// Warps of 8 tensor-core tiles where a tile has 64 batch entries or more, so that what a warp does besides
/// serves many products; else of 4, so that small tiles still have warps to hide each other's waits. Of more
/// than 16 tiles none, as far as 8 warps go.
std::int32_t warps_for(std::int32_t tiles, std::int32_t tile_n) {
  const std::int32_t least = tile_n >= 64 ? 16 : 4;  // where a warp is halved
  std::int32_t warps = 1;
  while (warps < 8 && tiles % (warps * 2) == 0 && (warps < 4 ? tiles >= warps * least : tiles > warps * 16))
    warps *= 2;
  return warps;
}

/// CTAs planned for a multiprocessor. Small tiles stream the weight: more CTAs with more copies in flight.
/// One batch tile of 64 has few steps to share out: one CTA with many stages, rather than several that begin
/// and end.
std::int32_t split_for(std::int32_t tile_n, std::int64_t n) {
  if (tile_n < 64) return 4;
  return n <= 64 ? 1 : 2;
}

Config default_mma(const Spmm& problem, const Target& target, std::int64_t n) {
  Config config;
  config.variant = Variant::mma;
  config.tile_out = 0;
  choose_tile(config, problem, n);
  config.warps = warps_for(tiles_of(problem, config), config.tile_n);
  config.split = split_for(config.tile_n, n);
  config.stages = target.compute_capability() < 80 ? 2 : config.split == 1 ? 6 : 4;
  // As many stages as leave room for the CTAs of one multiprocessor: what does not fit waits for a CTA to
  // end, and the schedule had counted on all of them at once.
  const auto fits = [&] {
    const MmaShape shape = mma_shape(problem, target, config);
    return config.split <= resident_ctas(target, shape.threads, shape.shared_bytes + kMmaStaticShared);
  };
  while (config.stages > 2 && !fits()) --config.stages;
  while (config.split > 1 && !fits()) --config.split;
  return config;
}

/// The tile of variant stream that holds the whole batch, so that the weight is read once: 8 or 16 entries.
Config stream_tile(const Spmm& problem, std::int64_t n) {
  Config config;
  config.variant = Variant::stream;
  config.tile_out = 0;
  config.tile_n = tile_for(n, 8, 16);
  if (problem.ieee()) return config;
  if (problem.block.out >= 16)
    config.operand_a = OperandA::w;
  else
    config.tile_n = 16;  // the rows of A
  return config;
}

bool streams(const Spmm& problem, const Target& target, std::int64_t n) {
  const bool whole = problem.cut_in == 0 && problem.cut_out == 0 && problem.alignment == 16;
  return n <= 16 && whole && !problem.gates && !problem.epilogue.glu && !problem.by_columns() &&
         !problem.feature_major() &&
         stream_registers(problem, target, stream_tile(problem, n)) <= kMostThreadRegisters;
}

/// One CTA a multiprocessor, with so much of the weight on its way as hides the latency of global memory:
/// what a multiprocessor's share of the bandwidth brings in a microsecond is 25 KB (H100 SXM: 3.35 TB/s by
/// the datasheet, 132 multiprocessors), and copies are not spread evenly.
Config default_stream(const Spmm& problem, const Target& target, std::int64_t n) {
  constexpr std::int64_t kOnTheirWay = 64 * 1024;
  Config config = stream_tile(problem, n);
  config.warps = 8;
  config.stages = 2;
  const std::int64_t room = multiprocessor(target).shared_per_cta - kStreamStaticShared;
  const auto fits = [&] { return stream_shared_bytes(problem, config) <= room; };
  while (config.warps > 1 && !fits()) config.warps /= 2;
  if (target.compute_capability() < 80) return config;  // no asynchronous copy: one chunk is on its way
  const std::int64_t chunks = config.warps * problem.block.out * kStreamChunkBytes;  // W's part of a stage
  while (config.stages < kMostStreamStages && (config.stages - 1) * chunks < kOnTheirWay) ++config.stages;
  while (!fits()) --config.stages;
  return config;
}

}  // namespace

Config default_config(const Spmm& problem, const Target& target, std::int64_t n) {
  if (streams(problem, target, n)) return default_stream(problem, target, n);
  return problem.ieee() ? default_simt(problem, target, n) : default_mma(problem, target, n);
}

namespace {

/// As many blocks as give a run of 128 inputs, or as the fullest block row has, and fewer where there would
/// not be two runs for each worker. Not fewer than give 32 inputs, which a warp's reads and writes want.
std::int32_t width_for(const Sddmm& gradient, const Target& target) {
  constexpr std::int32_t kColumns = 128;
  constexpr std::int32_t kLeastColumns = 32;
  std::int32_t width = std::clamp(kColumns / gradient.block.in, 1, 8);
  while (width > kLeastColumns / gradient.block.in && width > 1 &&
         (width / 2 >= gradient.layout.statistics().longest_row ||
          gradient.layout.blocks() / width < 2 * std::int64_t{target.workers}))
    width /= 2;
  return width;
}

}  // namespace

Config default_config(const Sddmm& gradient, const Target& target, std::int64_t n) {
  const auto element = static_cast<std::int64_t>(size_of(gradient.dtype));
  const auto step = static_cast<std::int32_t>(32 / element);  // batch entries of a k-step
  const std::int64_t room = multiprocessor(target).shared_per_cta - kSddmmStaticShared;
  Config config;
  config.variant = gradient.ieee() ? Variant::simt : Variant::mma;
  config.rows = width_for(gradient, target);
  while (config.rows > 1 && 4 * gradient.block_elements() * config.rows > room) config.rows /= 2;
  const std::int64_t sums = gradient.block_elements() * config.rows;
  config.tile_out = gradient.ieee() ? (sums >= 64 * 128 ? 8 : 4) : 0;
  config.tile_n = tile_for(n, 32, element == 2 ? 64 : 32);
  config.stages = target.compute_capability() < 80 ? 2 : 3;
  // A stage: dy, as much of z, and x.
  const std::int64_t entry = (2 * gradient.block.out + gradient.block.in * config.rows) * element;
  const auto fits = [&] { return config.stages * config.tile_n * entry <= room; };
  while (config.tile_n > 32 && !fits()) config.tile_n /= 2;
  while (config.stages > 2 && !fits()) --config.stages;
  while (config.tile_n > step && !fits()) config.tile_n /= 2;
  const std::int64_t of_warp = gradient.ieee() ? 32 * config.tile_out * config.tile_out : 32 * 32;
  // Up to 4 warps share the k-steps of a stage where the sums do not keep as many busy.
  config.warps = gradient.ieee() ? 4 : std::clamp(config.tile_n / step, 1, 4);
  while (config.warps < 8 && sums > of_warp * config.warps) config.warps *= 2;
  const SddmmShape shape = sddmm_shape(gradient, target, config);
  config.split =
      std::clamp(resident_ctas(target, shape.threads, shape.shared_bytes + kSddmmStaticShared), 1, 4);
  return config;
}

}  // namespace sparsekiln::cuda
