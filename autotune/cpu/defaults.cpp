#include "autotune/cpu/defaults.h"

#include <algorithm>
#include <bit>

#include "compiler/cpu_levels.h"
#include "compiler/element.h"

namespace sparsekiln::cpu {
namespace {

/// On AVX2 four vectors, the widest register tile, and on AVX-512 two. Wider batch tiles gain nothing on the
/// one; on both the packed x of 4096 inputs takes half a MiB, which fits L2.
constexpr std::int32_t kBatchRowsOfWideVectors = 32;
/// Outputs of a block from which four vectors are faster on AVX-512, too, where whole batch tiles of them
/// keep all threads busy: the weight is then read half as often.
constexpr std::int32_t kOutputsOfFourVectors = 16;

/// Points of a tile of a convolution; what a tile takes besides, and what packing a point takes, of what
/// computing a point takes.
constexpr std::int32_t kMostPoints = 128;
constexpr double kPointsOfTile = 4;
constexpr double kPackingOfPoint = 0.25;

constexpr std::int32_t kShares = 4;  ///< of a batch tile, for each thread
constexpr std::int64_t kRowsOfShare = 16;
/// The fewest multiply-adds of a share: some ten microseconds with AVX-512. On Zen 4, 1 % of 128 × 128 blocks
/// of 32 for 32 batch rows, with two thirds of that in each of eight shares, takes a fifth longer than with
/// two; 10 % takes the same.
constexpr std::int64_t kWorkOfShare = std::int64_t{1} << 20;

/// Batch rows of a chunk of the gradient of the weight, whose panels share L1 with the sums.
constexpr std::int32_t kChunk = 64;
/// Vectors of x in a register tile, from as many blocks as have them.
constexpr std::int32_t kRunVectors = 4;
/// Blocks of a run, where a block has one vector: with four of their outputs they fill the registers.
constexpr std::int32_t kNarrowRun = 3;
/// The least batch rows for which a pass that packs them pays, and the most bytes that all pairs may take.
/// Pages that no launch fills are never touched.
constexpr std::int64_t kPackedFrom = 16;
constexpr std::int64_t kMostPackedBytes = std::int64_t{1} << 30;
/// Features of x and dy together, where the config is for all layouts: 4096 each.
constexpr std::int64_t kFeaturesOfAny = 8192;

/// Whether so many batch tiles keep all threads busy, so that each has its own.
bool shares_out(std::int64_t tiles, std::int32_t workers) {
  return tiles >= 4 * std::int64_t{workers} || (tiles > 0 && tiles % workers == 0);
}

/// Up to four batch rows, or one vector of them, or else pairs of vectors, which the main loop wants; of the
/// sizes that do, the one that computes the fewest batch rows that are not there, and the preferred one of
/// equals.
std::int32_t tile_for(std::int64_t n, std::int32_t lanes, std::int32_t block_out, std::int32_t workers) {
  if (n <= lanes) return n > 4 ? lanes : n > 2 ? 4 : static_cast<std::int32_t>(std::max<std::int64_t>(n, 1));
  const auto computed = [&](std::int32_t tile) { return (n + tile - 1) / tile * tile; };
  std::int32_t best = lanes >= 8 ? kBatchRowsOfWideVectors : kMostBatchRows;
  for (std::int32_t tile = kMostBatchRows; tile >= 32; tile -= 16)
    if (tile % (2 * lanes) == 0 && computed(tile) < computed(best)) best = tile;
  const std::int32_t four = 4 * lanes;
  if (lanes >= 16 && block_out >= kOutputsOfFourVectors && shares_out((n + four - 1) / four, workers) &&
      computed(four) <= computed(best))
    return four;
  const std::int64_t pairs = (n + 2 * lanes - 1) / (2 * lanes);
  return static_cast<std::int32_t>(std::min<std::int64_t>(best, pairs * 2 * lanes));
}

/// Points of a tile of a convolution: those for which n images take least. Some points of a tile are computed
/// in vain; tiles that are not shared pack what they read together (Geometry::share_panels), others each.
std::int32_t tile_for(const Spmm& convolution, std::int64_t n, std::int32_t lanes, std::int32_t workers) {
  const std::int32_t step = std::max(lanes, 16);
  std::int32_t best = step;
  const auto cost = [&](std::int32_t tile) {
    const std::int64_t tiles = convolution.batch_tiles(n, {.variant = Variant::vector, .tile_n = tile});
    const std::int64_t packed = shares_out(tiles, workers) ? 0 : convolution.correlation->panel_points(tile);
    return static_cast<double>(tiles) *
           (tile + kPointsOfTile + kPackingOfPoint * static_cast<double>(packed));
  };
  for (std::int32_t tile = step; tile <= kMostPoints; tile += step)
    if (cost(tile) <= cost(best)) best = tile;  // the widest of equals reads the weight least often
  return best;
}

/// Batch rows of a tile of plain passes, which copy what they read of x for each block: a power of two.
std::int32_t plain_tile_for(std::int64_t n) {
  constexpr std::int64_t kMostPlainBatchRows = 32;
  const std::int64_t batch_rows = std::clamp<std::int64_t>(n, 1, kMostPlainBatchRows);
  return static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint64_t>(batch_rows)));
}

/// Shares of a batch tile for each thread. One, where the tiles of small batches take microseconds, and where
/// whole batch tiles keep all threads busy: then each packs x for itself, and none waits for another. Else
/// more shares than threads, handed out one by one: a thread that the system takes away delays one of them;
/// but only of layouts that have work enough for so many, and rows enough to fill them evenly, for splitting
/// rows costs more.
std::int32_t split_for(std::int64_t tiles, std::int32_t tile_n, std::int32_t lanes, std::int32_t workers,
                       const Spmm& problem) {
  const std::int64_t shares = std::int64_t{kShares} * workers;
  const std::int64_t work =
      problem.layout.blocks() * problem.block.out * problem.block.in * tile_n * problem.weights();
  const bool few = problem.layout.rows() < kRowsOfShare * shares || work < kWorkOfShare * shares;
  return workers == 1 || tile_n < lanes || shares_out(tiles, workers) || few ? 1 : kShares;
}

bool is_plain(DType type) { return element(type).cpu == CpuPasses::plain; }

}  // namespace

Config default_config(const Spmm& problem, const Target& target, std::int64_t n) {
  const std::int32_t lanes = level_of(target).lanes;
  const std::int32_t workers = std::max(target.workers, 1);
  Config config;
  config.variant = Variant::vector;
  config.tile_n = is_plain(problem.dtype)
                      ? plain_tile_for(problem.correlation ? problem.correlation->span() : n)
                  : problem.correlation ? tile_for(problem, n, lanes, workers)
                                        : tile_for(n, lanes, problem.block.out, workers);
  config.warps = 1;
  config.table = TableForm::global;
  config.in_flight = kAllInFlight;
  config.split = split_for(problem.batch_tiles(n, config), config.tile_n, lanes, workers, problem);
  return config;
}

Config default_config(const Sddmm& gradient, const Target& target, std::int64_t n) {
  const std::int32_t vectors = std::max(1, gradient.block.in / level_of(target).lanes);
  Config config;
  config.variant = Variant::vector;
  config.tile_n = kChunk;
  config.warps = 1;
  config.table = TableForm::global;
  config.in_flight = kAllInFlight;
  config.rows = vectors >= kRunVectors ? 1 : vectors == 1 ? kNarrowRun : kRunVectors / vectors;
  config.split = target.workers == 1 ? 1 : kShares;
  const bool any = gradient.layout.rows() == 0;
  const std::int64_t features = any ? kFeaturesOfAny : gradient.in_features() + gradient.out_features();
  const std::int64_t packed_bytes = std::int64_t{4} * kMostPairs * n * features;
  const bool packs = n >= kPackedFrom && packed_bytes <= kMostPackedBytes;
  config.stages = !is_plain(gradient.dtype) && (gradient.correlation || packs) ? 2 : 1;
  return config;
}

}  // namespace sparsekiln::cpu
