#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sparsekiln/binary.h>
#include <sparsekiln/config.h>

namespace sparsekiln::cpu {

/// What the code of an entry takes of its layout besides tables: constants where the layout is baked.
enum class LayoutNumber : std::uint8_t {
  workers,
  in_features,   ///< of x that exist; what cuts its last block column and row is read where something is cut
  last_column,   ///< of blocks
  last_inputs,   ///< of its features that exist
  out_features,  ///< of y, or dy
  last_row,
  last_outputs,
  words,          ///< of a product: of one batch row of x, whole blocks; see Geometry
  counters,       ///< of one batch tile: split rows
  counter_bytes,  ///< of all batch tiles, in front of the workspace
  tile_bytes,     ///< of the workspace of one batch tile
  one_bytes,      ///< of the workspace of each of a batch, of a gradient of the weight
  x_panels,       ///< of a gradient of the weight, see PanelSide
  dy_panels,
  streams,           ///< 1: the weight, or dw, is larger than caches, see product_data, SddmmGeometry; else 0
  streams_products,  ///< 1: the same for a batch of one
  many_products,     ///< 1: dw is much beside x and dy
  out_blocks,        ///< of a convolution: blocks of y's features
  block_scales,      ///< of a gradient of the weight whose block scales are shared by taps
};
inline constexpr std::size_t kLayoutNumbers = 19;

/// The tables of an entry, each of 32-bit integers. SpMM and SDDMM entries each have their own.
enum ProductTable : std::size_t {
  kWorkerBegin,  ///< workers + 1 offsets into items
  kItems,        ///< kItemFields each, in the order of schedule.h's Item
  kColumns,      ///< the block column of each step, of a convolution the place of its x in a panel; then
                 ///< kColumnsBehind zeros; plain code has the column always, and no zeros
  kBlocks,  ///< the block number of each step, then zeros; empty where baked and each step's block has its
            ///< number
  kGroupBegin,  ///< workers + 1 offsets into groups; empty, as the next two: no groups
  kGroups,      ///< kGroupFields each: first item, items; first step, steps, or first span, spans
  kSlots,       ///< of each step its item within the group; where there are windows kSpanFields of each span
  /// Baked alone: the words of x that are packed, first and end of each stretch, where some are of columns
  /// without a block; else empty.
  kPackedWords,
  /// Baked alone: the scale of each step, where blocks have different taps; else empty.
  kScaleOfStep,
};
/// Plain code has no groups.
enum PlainTable : std::size_t {
  /// The taps of a convolution: of each step its tap's phase, and the first point that it reads there.
  kTapPlaces = kGroupBegin,
};
enum SddmmTable : std::size_t {
  kRunBegin,           ///< workers + 1 offsets into runs
  kRuns,               ///< kRunFields each, in the order of block_runs.h's BlockRun
  kBlockColumns,       ///< the column of x's blocks of each block, by its number
  kStretches,          ///< adjacent runs of a block row as one: row, first block, end
  kStretchBegin,       ///< workers + 1 offsets into stretches
  kBlockPlaces,        ///< of a convolution: the row in an image's panel at which each block's tap begins
  kScaleOfBlock,       ///< baked alone: the scale of each block of dw, where their taps differ; else empty
  kFirstBlockOfScale,  ///< the same: the first block of each block scale, and the end
};

/// Tables of an entry; those beyond the arrays of an image are baked alone.
inline constexpr std::size_t kLayoutTables = TableImage::kArrays + 2;

/// What tables are called in the text of a module, by ProductTable or SddmmTable.
using TableNames = std::array<std::string_view, kLayoutTables>;
inline constexpr TableNames kProductTableNames{"worker_begin", "items",        "columns",
                                               "blocks",       "group_begin",  "groups",
                                               "slots",        "packed_words", "block_scale_of"};
inline constexpr TableNames kPlainTableNames{
    "worker_begin", "items", "columns", "blocks", "tap_places", "", "", "", "block_scale_of"};
inline constexpr TableNames kSddmmTableNames{
    "worker_begin",         "runs", "columns", "stretches", "stretch_begin", "places", "block_scale_of",
    "first_block_of_scale", ""};

/// Everything that the code of one entry takes of its layout.
struct LayoutData {
  std::array<std::int64_t, kLayoutNumbers> numbers{};
  std::array<std::vector<std::int32_t>, kLayoutTables> tables;

  [[nodiscard]] std::int64_t& operator[](LayoutNumber number) {
    return numbers[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] std::int64_t operator[](LayoutNumber number) const {
    return numbers[static_cast<std::size_t>(number)];
  }
};

/// Where the code finds them in an image: int64 numbers, then the int64 offset of each table, then the
/// tables.
[[nodiscard]] constexpr std::int64_t place_of(LayoutNumber number) {
  return 8 * static_cast<std::int64_t>(number);
}
[[nodiscard]] constexpr std::int64_t place_of_offset(std::size_t table) {
  return 8 * static_cast<std::int64_t>(kLayoutNumbers + table);
}
[[nodiscard]] TableImage image_of(const LayoutData& data);

/// What an entry of a plan adds to the names of its passes and tables.
[[nodiscard]] std::string entry_suffix(const Plan& plan, std::size_t entry);

/// Sets what the layout decides in the recipe of an entry: workers and workspace.
void describe(const LayoutData& data, Entry& entry);

}  // namespace sparsekiln::cpu
