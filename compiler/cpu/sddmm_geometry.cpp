#include "compiler/cpu/sddmm_geometry.h"

#include <limits>
#include <utility>

#include <sparsekiln/error.h>

namespace sparsekiln::cpu {
namespace {

/// Bytes of dw from which it bypasses the caches: the last level of a processor's cache holds less, or is
/// needed for operands.
constexpr std::int64_t kStreamedBytes = std::int64_t{16} << 20;

/// The most of a register tile's row.
constexpr std::int32_t kRowVectors = 4;

PanelSide side_of(SddmmSide side, bool of_dy, std::int32_t block_width, std::int64_t cut_features) {
  PanelSide result;
  result.side = side;
  result.of_dy = of_dy;
  result.block_width = block_width;
  result.width = std::min(block_width, kMostPanelWidth);
  result.cut = cut_features % block_width != 0;
  return result;
}

/// `total` in the fewest shares of at most `most`, the large ones first.
std::vector<std::int32_t> shares(std::int32_t total, std::int32_t most) {
  const std::int32_t count = (total + most - 1) / most;
  std::vector<std::int32_t> result;
  for (std::int32_t i = 0; i < count; ++i) result.push_back((total + count - 1 - i) / count);
  return result;
}

/// What a worker computes without regard to the lengths of runs.
struct Stretches {
  std::vector<std::int32_t> fields;  ///< kStretchFields each
  std::vector<std::int32_t> worker_begin;
};

Stretches stretches_of(const BlockRuns& schedule) {
  Stretches result;
  for (std::int32_t worker = 0; worker < schedule.workers(); ++worker) {
    result.worker_begin.push_back(static_cast<std::int32_t>(result.fields.size()) / kStretchFields);
    const BlockRun* before = nullptr;
    for (const BlockRun& run : schedule.runs_of(worker)) {
      const std::int32_t end = run.first + run.blocks;
      if (before != nullptr && before->row == run.row && before->first + before->blocks == run.first)
        result.fields.back() = end;
      else
        result.fields.insert(result.fields.end(), {run.row, run.first, end});
      before = &run;
    }
  }
  result.worker_begin.push_back(static_cast<std::int32_t>(result.fields.size()) / kStretchFields);
  return result;
}

/// Where the x of each block begins in a panel.
std::vector<std::int32_t> places_of(const Sddmm& gradient) {
  const Correlation& lattice = *gradient.correlation;
  std::vector<std::int32_t> of_tap(static_cast<std::size_t>(lattice.kernel_taps));
  for (const Correlation::Tap& tap : lattice.taps[0]) {
    const std::int64_t place = tap.phase * lattice.image_phase_points() + tap.displacement - lattice.least;
    if (place > std::numeric_limits<std::int32_t>::max())
      throw Error(
          ErrorKind::invalid_argument,
          "a convolution of images with more than 2^31 points, padding included; smaller ones would work");
    of_tap[static_cast<std::size_t>(tap.number)] = static_cast<std::int32_t>(place);
  }
  std::vector<std::int32_t> places;
  for (const std::int32_t column : gradient.layout.col())
    places.push_back(of_tap[static_cast<std::size_t>(column % lattice.kernel_taps)]);
  return places;
}

void put_block_scales(LayoutData& data, const Sddmm& gradient) {
  const BlockScales& block_scales = gradient.block_scale_map;
  for (std::int32_t block = 0; block < gradient.layout.blocks(); ++block)
    data.tables[kScaleOfBlock].push_back(block_scales.of(block));
  for (std::int32_t block_scale = 0; block_scale <= block_scales.count(); ++block_scale)
    data.tables[kFirstBlockOfScale].push_back(block_scales.first(block_scale));
}

void put_tables(LayoutData& data, const Sddmm& gradient, const BlockRuns& schedule) {
  std::vector<std::int32_t>& runs = data.tables[kRuns];
  for (const BlockRun& run : schedule.runs)
    runs.insert(runs.end(), {run.row, run.first, run.blocks, run.first_of_row ? 1 : 0});
  std::vector<std::int32_t>& columns = data.tables[kBlockColumns];
  const std::int32_t taps = gradient.correlation ? gradient.correlation->kernel_taps : 1;
  for (const std::int32_t column : gradient.layout.col()) columns.push_back(column / taps);
  if (gradient.correlation) data.tables[kBlockPlaces] = places_of(gradient);
  if (gradient.block_scale_map.taps() == 0) put_block_scales(data, gradient);
  // What a worker prefetches after the last run of all.
  runs.insert(runs.end(), kRunFields, 0);
  columns.insert(columns.end(), kMostRunBlocks, 0);
  data.tables[kRunBegin] = schedule.worker_begin;
  Stretches stretches = stretches_of(schedule);
  data.tables[kStretches] = std::move(stretches.fields);
  data.tables[kStretchBegin] = std::move(stretches.worker_begin);
}

}  // namespace

SddmmGeometry::SddmmGeometry(const Sddmm& gradient, const Level& level, const Config& config)
    : correlation(gradient.correlation),
      dtype(gradient.dtype),
      out_dtype(gradient.out_dtype),
      block(gradient.block),
      order(gradient.order),
      channels_first(gradient.channels_first()),
      derivative(gradient.derivative),
      alignment(gradient.alignment),
      scale(gradient.epilogue.scale),
      block_scales(gradient.block_scales),
      bias_gradient(gradient.bias_gradient),
      block_scale_gradient(gradient.block_scale_gradient),
      blocks_per_scale(gradient.block_scale_map.taps()),
      sums_block_scales_of_taps(gradient.sums_block_scales_of_taps()),
      x(side_of(SddmmSide::x, gradient.exchanged(), block.in, gradient.cut_cols())),
      dy(side_of(SddmmSide::dy, !gradient.exchanged(), block.out, gradient.cut_rows())),
      bias(gradient.exchanged() ? x : dy),
      chunk(config.tile_n),
      lanes(std::min(level.lanes, block.in)),
      most_sums(level.gradient_sums),
      run_blocks(config.rows),
      packed(config.stages > 1) {
  bias.in_place = gradient.exchanged();
  // Stores of whole rows of blocks follow each other. Parts of lines that wait for their rest would be
  // written one by one.
  const bool whole_rows = block.in / lanes <= kRowVectors;
  const bool can_stream =
      level.streaming_stores && lanes * static_cast<std::int32_t>(size_of(out_dtype)) >= 16;
  streams = can_stream && whole_rows;
  streams_products = can_stream && !packed;
  const bool bare =
      !scale && !block_scales && !block_scale_gradient && derivative == Activation::none && !x.cut && !dy.cut;
  exact_products = dtype == DType::bf16 && out_dtype == DType::bf16 && !packed && bare &&
                   order == ActivationOrder::batch_major;
}

SddmmTile SddmmGeometry::tile(std::int32_t blocks) const {
  const std::int32_t vectors = run_width(blocks) / lanes;
  SddmmTile tile;
  tile.vectors = vectors % kRowVectors == 0 ? kRowVectors : vectors % 3 == 0 ? 3 : vectors % 2 == 0 ? 2 : 1;
  tile.outputs = shares(dy.width, most_sums / tile.vectors);
  return tile;
}

LayoutData sddmm_data(const Sddmm& gradient, const SddmmGeometry& geometry, const BlockRuns& schedule) {
  const std::int64_t dw_elements = gradient.layout.blocks() * geometry.block_elements();
  const bool large = dw_elements * static_cast<std::int64_t>(size_of(geometry.out_dtype)) >= kStreamedBytes;
  LayoutData data;
  put_tables(data, gradient, schedule);
  data[LayoutNumber::workers] = schedule.workers();
  data[LayoutNumber::in_features] = gradient.in_features();
  data[LayoutNumber::out_features] = gradient.out_features();
  data[LayoutNumber::x_panels] = std::int64_t{gradient.in_blocks()} * geometry.x.panels_of_block();
  data[LayoutNumber::dy_panels] = std::int64_t{gradient.layout.rows()} * geometry.dy.panels_of_block();
  data[LayoutNumber::streams] = geometry.streams && large ? 1 : 0;
  data[LayoutNumber::streams_products] = geometry.streams_products && large ? 1 : 0;
  // Each worker looks at all of x and dy, which must be little beside what it stores.
  const bool many = dw_elements > schedule.workers() * (gradient.in_features() + gradient.out_features());
  data[LayoutNumber::many_products] = geometry.exact_products && many ? 1 : 0;
  data[LayoutNumber::block_scales] = gradient.block_scale_map.count();
  if (geometry.sums_block_scales_of_taps)
    data[LayoutNumber::tile_bytes] = (std::int64_t{4} * gradient.layout.blocks() + 63) / 64 * 64;
  if (geometry.packed)
    data[LayoutNumber::one_bytes] =
        geometry.most_pairs() *
        (data[LayoutNumber::x_panels] * geometry.x.row_bytes() * geometry.rows_of_entry(SddmmSide::x) +
         data[LayoutNumber::dy_panels] * geometry.dy.row_bytes() * geometry.rows_of_entry(SddmmSide::dy));
  return data;
}

}  // namespace sparsekiln::cpu
