#include <algorithm>
#include <utility>

#include "compiler/cpu/passes.h"

namespace sparsekiln::cpu {
namespace {

/// Bytes of x in one chunk of blocks. Two chunks, the one in use and the one being fetched, share L1 (32 KiB
/// on most processors) with the weight and the sums.
constexpr std::int32_t kChunkBytes = 8192;
/// Bytes of a chunk's weight where it is widened to float32 first; all register tiles read it from L1.
constexpr std::int32_t kWidenedBytes = 16384;

/// Elements of a block that is too small to be read as a stream of its own, where blocks are not contiguous.
constexpr std::int32_t kGroupedBlock = 1024;
/// Bytes of the sums of a group of items, through which each row of W goes in order. L2 holds them, and the
/// more there are, the more blocks share their x.
constexpr std::int32_t kGroupBytes = 65536;
/// Bytes of the weight of a window: L2 holds it, and the more steps it has, the longer sums stay in
/// registers.
constexpr std::int32_t kWindowBytes = 131072;
/// The most steps of an item's span, in the mean: each register tile goes over all of them.
constexpr std::int32_t kMeanSpan = 16;

/// Problems that a pass which reads the weight in place cannot compute.
bool must_copy(const Spmm& problem) {
  return problem.feature_major() || problem.block_scales || problem.cut_in != 0 || problem.correlation;
}

/// Bytes of the packed x of a strip, in L2 with the weight.
constexpr std::int64_t kStripBytes = 262144;
/// Batch tiles for each thread, so that none waits long for another.
constexpr std::int64_t kJobs = 4;
/// Strips whose length depends on the layout, where that is attached: each length has code of its own, a
/// third of the length before.
constexpr std::int64_t kFewerTiles = 3;

}  // namespace

Geometry::Geometry(const Spmm& problem, const Level& level, const Config& config)
    : correlation(problem.correlation),
      edges(problem.epilogue.edge_bias ? std::make_shared<const EdgeRuns>(edge_runs(problem.convolution))
                                       : nullptr),
      dtype(problem.dtype),
      out_dtype(problem.out_dtype),
      residual_dtype(problem.result_dtype),
      epilogue(problem.epilogue),
      cell(cell_of(problem)),
      derivative(problem.derivative),
      feature_major(problem.feature_major()),
      channels_first(problem.channels_first()),
      block_scales(problem.block_scales),
      blocks_per_scale(problem.block_scale_map.taps()),
      weights(problem.weights()),
      alignment(problem.alignment),
      cuts_in(problem.cut_in % problem.block.in != 0),
      cuts_out(problem.cut_out % problem.block.out != 0),
      word_elements(cpu::word_elements(dtype, problem.by_columns())),
      word_bytes(word_elements * static_cast<std::int32_t>(size_of(dtype))),
      block_out(problem.block.out) {
  tile_n = config.tile_n;
  if (correlation) {
    images = static_cast<std::int32_t>(problem.images_of_tile(tile_n));
    image_strips = static_cast<std::int32_t>(correlation->tiles(tile_n));
  }
  small_batch = tile_n < level.lanes;
  packs_x = !small_batch || problem.changes_x();
  axis = small_batch && problem.by_columns() ? Axis::output : axis_of(level, block_out, dtype, config);
  order = config.packed          ? WeightOrder::packed
          : problem.by_columns() ? WeightOrder::columns
                                 : WeightOrder::rows;
  if (!small_batch && axis == Axis::output && must_copy(problem)) {
    axis = Axis::batch_row;  // all outputs of a word are neighbours, whatever the register tile
    order = WeightOrder::columns;
  }
  Config of_tile = config;
  of_tile.packed = order == WeightOrder::packed;
  block_words = problem.block.in / word_elements;
  tile = register_tile(level, block_out, dtype, of_tile, problem.by_columns());
  const std::int32_t shared = axis == Axis::output ? block_out : tile_n;
  // The taps of a block read the same x.
  const std::int32_t taps = correlation ? correlation->kernel_taps : 1;
  chunk = std::clamp(std::max(1, kChunkBytes / (4 * block_words * shared)) * taps, 1, kMostBlocks);
  if (copies_weight()) chunk = std::clamp(kWidenedBytes / (4 * block_words * block_out), 1, chunk);
  sums_bytes = std::int64_t{4} * weights * block_out * tile_n;
  const bool copied = small_batch ? cuts_in : copies_weight();
  const bool grouped = problem.by_columns() && !copied && block_out * block_words <= kGroupedBlock;
  group_items = grouped ? std::max(1, kGroupBytes / static_cast<std::int32_t>(sums_bytes)) : 1;
  if (group_items > 1 && !small_batch)
    window_steps =
        std::clamp(kWindowBytes / static_cast<std::int32_t>(block_bytes()), 1, kMeanSpan * group_items);
}

void Geometry::set_strips(std::int64_t strips, std::int64_t n, std::int32_t threads) {
  const std::int64_t tiles = correlation->tiles(tile_n);
  const std::int64_t groups = (std::max<std::int64_t>(n, 1) + images - 1) / images;  // of images
  const std::int64_t jobs = threads == 1 ? 1 : kJobs * threads;
  const std::int64_t groups_of_job = std::max<std::int64_t>(1, groups / jobs);
  const std::int64_t tiles_of_job = std::clamp<std::int64_t>(tiles * groups / jobs, 1, tiles);
  strip_tiles = static_cast<std::int32_t>((tiles_of_job + strips - 1) / strips);
  const std::int64_t strips_of_image = (tiles + strip_tiles - 1) / strip_tiles;
  const std::int64_t jobs_of_image = (strips_of_image + strips - 1) / strips;
  image_strips = static_cast<std::int32_t>(jobs_of_image * strips);
  panel_strips = static_cast<std::int32_t>(groups_of_job * strips);
}

bool Geometry::has_small_panel(std::int64_t words) const {
  return strip_tiles == 1 || words * panel_word_bytes() <= kStripBytes;
}

void Geometry::share_panels(const Spmm& problem, std::int64_t n, std::int32_t threads) {
  const std::int64_t words = std::int64_t{problem.in_blocks()} * block_words;
  std::int64_t strips = 1;
  for (set_strips(strips, n, threads); !has_small_panel(words);) set_strips(++strips, n, threads);
}

std::vector<Geometry> Geometry::sharing_panels(std::int64_t n, std::int32_t threads) const {
  std::vector<Geometry> forms;
  for (std::int64_t strips = 1; forms.empty() || forms.back().strip_tiles > 1; strips *= kFewerTiles) {
    Geometry form = *this;
    form.set_strips(strips, n, threads);
    if (form.has_small_panel(block_words)) forms.push_back(std::move(form));  // of one block column or more
  }
  return forms;
}

}  // namespace sparsekiln::cpu
