#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>

#include "compiler/cpu/cell_form.h"
#include "compiler/cpu/layout_data.h"
#include "compiler/cpu/layout_ir.h"
#include "compiler/cpu/level.h"
#include "compiler/cpu/packed_weight.h"
#include "compiler/cpu/vector_ir.h"
#include "compiler/edge_runs.h"
#include "compiler/schedule.h"
#include "compiler/spmm.h"

namespace sparsekiln::cpu {

/// The numbers both passes of one entry share, which do not depend on the layout: LayoutNumber has the
/// others. A *word* (word_elements) is 32 bits in packed x: one float32, or two bf16 that are multiplied as a
/// pair.
struct Geometry {
  Geometry(const Spmm& problem, const Level& level, const Config& config);
  /// Chooses strips for a batch of n and so many threads, none of which shares a tile.
  void share_panels(const Spmm& problem, std::int64_t n, std::int32_t threads);
  /// The same where a layout is attached: what code is made for, of which each layout takes one. Strips
  /// become shorter by a factor of three, and the last are of one tile.
  [[nodiscard]] std::vector<Geometry> sharing_panels(std::int64_t n, std::int32_t threads) const;
  /// Whether the panel of a strip of a layout with so many words stays in a cache.
  [[nodiscard]] bool has_small_panel(std::int64_t words) const;

  std::shared_ptr<const Correlation> correlation;  ///< of a convolution; null: a linear layer
  std::shared_ptr<const EdgeRuns> edges;           ///< of an edge bias; null: there is none
  DType dtype;
  DType out_dtype;
  DType residual_dtype;
  Epilogue epilogue;
  std::optional<CellForm> cell;  ///< where the epilogue is one of an LSTM
  Activation derivative;
  bool feature_major;
  bool channels_first;  ///< as Computation's
  bool block_scales;
  std::int32_t blocks_per_scale;  ///< blocks of the weight that one multiplies; 0: kScaleOfStep says which
  std::int32_t weights;           ///< W, or W and V
  std::int32_t alignment;         ///< bytes, of x and y
  bool cuts_in;                   ///< x has no features for the end of the last block column
  bool cuts_out;                  ///< y has none for the end of the last block row
  std::int32_t word_elements;     ///< along k
  std::int32_t word_bytes;        ///< of unpacked x and of the weight, in memory
  std::int32_t block_words;       ///< of one row of a block
  std::int32_t block_out;
  std::int32_t tile_n;
  bool small_batch;  ///< fewer batch rows than a vector has lanes
  bool packs_x;      ///< false: a small batch reads x in place
  Axis axis;
  WeightOrder order;
  RegisterTile tile;
  std::int32_t chunk;        ///< blocks that a register tile goes over with its sums in registers, at most
  std::int32_t group_items;  ///< small blocks by columns: items whose steps are taken in the order of W, in
                             ///< windows; 1: each its own
  /// A group on packed x: so many steps that are adjacent in W are ordered by items, so that the sums of an
  /// item stay in registers for a *span* of steps. 0: none are reordered.
  std::int32_t window_steps = 0;
  /// A convolution packs x in *strips*: one or more tiles of an image, or small images that share a tile.
  /// Strips that follow one another in one panel, which stays in a cache, are one job; only tiles of one
  /// worker have several tiles in a strip, or strips in a panel.
  std::int32_t images = 1;  ///< of a tile
  std::int32_t strip_tiles = 1;
  std::int32_t image_strips = 1;  ///< numbers of strips for each image, or each tile of images
  std::int32_t panel_strips = 1;
  std::int64_t sums_bytes;  ///< one block row's sums: [weights] times, along batch rows [block_out][tile_n]
                            ///< float32, else [tile_n][block_out]
  [[nodiscard]] std::int64_t weight_sums_bytes() const { return sums_bytes / weights; }
  [[nodiscard]] std::int64_t out_bytes() const { return static_cast<std::int64_t>(size_of(out_dtype)); }
  /// The alignment of vectors of elements of a type, `bytes` bytes, in x and y. Vectors of points begin
  /// at any element.
  [[nodiscard]] unsigned aligned(DType type, std::int64_t bytes) const {
    const std::int64_t first = channels_first ? static_cast<std::int64_t>(size_of(type)) : alignment;
    return static_cast<unsigned>(std::min<std::int64_t>({16, bytes, first}));
  }
  /// Points of a strip.
  [[nodiscard]] std::int32_t strip_n() const { return tile_n * strip_tiles; }
  /// Points of a phase that a strip reads, rounded up to whole squares of 16.
  [[nodiscard]] std::int64_t phase_points() const { return correlation->phase_points(strip_n()); }
  /// Batch rows of packed x, or points of all phases of a strip.
  [[nodiscard]] std::int64_t packed_rows() const {
    return correlation ? correlation->panel_points(strip_n()) : tile_n;
  }
  /// Rows between two words of a panel: an odd number of cache lines for a convolution, so that words next
  /// to each other fall into different sets of a cache.
  [[nodiscard]] std::int64_t panel_rows() const {
    return correlation ? packed_rows() / 16 / 2 * 32 + 16 : tile_n;
  }
  /// Bytes of a word of x in the packed x of one batch tile, see emit_pack_pass; 0: nothing is packed.
  [[nodiscard]] std::int64_t panel_word_bytes() const { return packs_x ? 4 * panel_rows() : 0; }
  /// Vectors of a convolution's x begin at any point.
  [[nodiscard]] unsigned panel_alignment() const { return correlation ? 4 : 16; }
  [[nodiscard]] std::int64_t block_bytes() const {
    return std::int64_t{word_bytes} * block_out * block_words;
  }
  /// Pairs of bf16 along k.
  [[nodiscard]] bool pairs() const { return word_elements == 2; }
  [[nodiscard]] std::int32_t block_in() const { return block_words * word_elements; }
  /// All blocks are copied, and converted, before they are multiplied. Small batches convert and scale what
  /// they read, and copy blocks that are cut alone.
  [[nodiscard]] bool copies_weight() const { return !small_batch && (widens() || block_scales || cuts_in); }
  /// A copy has words as they are in memory; else each is a float32.
  [[nodiscard]] bool copies_words() const { return small_batch || !widens(); }
  [[nodiscard]] std::int64_t copied_word_bytes() const { return copies_words() ? word_bytes : 4; }
  /// Words are narrower in memory than the float32 they are multiplied as.
  [[nodiscard]] bool widens() const { return word_bytes < 4; }
  /// Along outputs, the words of k of one batch row that are contiguous in the panel: a cache line, or a
  /// block's.
  [[nodiscard]] std::int32_t line_words() const { return std::min(16, block_words); }

 private:
  /// Cuts what a thread computes of an image, or of the images that share a tile, into so many strips.
  void set_strips(std::int64_t strips, std::int64_t n, std::int32_t threads);
};

/// The tables of one entry, as the current pass reads them: see ProductTable.
struct Tables {
  llvm::Value* worker_begin = nullptr;
  llvm::Value* items = nullptr;
  llvm::Value* columns = nullptr;
  llvm::Value* blocks = nullptr;  ///< null: each step's block has its number
  llvm::Value* group_begin = nullptr;
  llvm::Value* groups = nullptr;
  llvm::Value* slots = nullptr;
};
[[nodiscard]] Tables locate_tables(LayoutIr& layout, const Geometry& geometry);
inline constexpr std::int32_t kItemFields = 7;
/// Items of a worker whose steps go through W in its order, or window by window: so that small blocks are one
/// stream.
inline constexpr std::int32_t kGroupFields = 4;
/// Adjacent steps of a group that are of one item: its number within the group, the first step and the end.
inline constexpr std::int32_t kSpanFields = 3;
/// The most blocks of a chunk.
inline constexpr std::int32_t kMostBlocks = 32;
/// The most steps that a pass looks ahead, to prefetch.
inline constexpr std::int32_t kColumnsBehind = 2 * kMostBlocks;

/// Pass 0: x[n, in], or where it is feature-major x[in, n], → panels, [word][tile_n] of a batch tile, or
/// along outputs [line][tile_n][line_words()], or of a small batch [tile_n][words], times the derivative
/// where there is one, widened to float32 where words are narrower; features of the last block that are
/// missing become zeros, and so do batch rows of the last tile, but of a small batch: those are as the last
/// one. Workers share the words. A convolution has [word][phase][point]: the points of each phase that a tile
/// reads, zeros outside of x, which is [n][position][in], or where it is feature-major [n][in][position].
void emit_pack_pass(VectorIr& ir, std::string_view name, const Geometry& geometry, LayoutIr& layout);
/// Words of a batch row that are packed before the next batch rows are read, at most.
[[nodiscard]] std::int64_t stretch_words(const Geometry& geometry);

/// The passes that compute the product, forward or the gradient of the input: the block products of a
/// worker's items in one batch tile, the combine of split rows, and the store to y.
///
/// Along batch rows, on packed x. Every output is one chain of float32 multiply-adds from 0, ascending in
/// block column and k (pairs of bf16: the even one first; vdpbf16ps fixes its own order of the two), one such
/// chain for each part of a split row. It is rounded once to y's type, when it is stored. `pack`: the pack
/// pass where this one is to call it, because no other worker uses its panel; else empty.
void emit_batch_row_pass(VectorIr& ir, std::string_view name, const Geometry& geometry, LayoutIr& layout,
                         std::string_view pack);

/// Along outputs: the same chains, so the same results bit for bit, for float32.
void emit_output_pass(VectorIr& ir, std::string_view name, const Geometry& geometry, LayoutIr& layout,
                      std::string_view pack);

/// Small batches, by rows: lanes are words of k, x is read by batch rows, so that the weight is read as one
/// stream of whole vectors. Every output (of a part) is one such chain for each lane, lane l of L summing the
/// words l, l + L … of every block, where L is the fewer of a vector's lanes and a block's words in k; then
/// the upper half of the lanes is added to the lower one until one lane is left.
void emit_small_batch_row_pass(VectorIr& ir, std::string_view name, const Geometry& geometry,
                               LayoutIr& layout, std::string_view pack);

/// Small batches, by columns: lanes are outputs, and elements of x are broadcast.
/// Every output (of a part) is C such chains, chain c summing the words c, c + C … of every block, where C is
/// as many as make eight sums of a register tile's outputs and batch rows; then the upper half of the chains
/// is added to the lower one until one is left. Where items are grouped C is 2 at most, the first chain goes
/// on from block to block, and the second one is of each block.
void emit_small_batch_column_pass(VectorIr& ir, std::string_view name, const Geometry& geometry,
                                  LayoutIr& layout, std::string_view pack);

/// The addresses of the weights of a pass's call, which are equally far apart.
[[nodiscard]] VectorIr::Values locate_weights(VectorIr& ir, std::int32_t weights);

/// The addresses of a batch tile's share of the workspace.
struct TileWorkspace {
  llvm::Value* counters;
  llvm::Value* panel;
  llvm::Value* partials;
};
[[nodiscard]] TileWorkspace locate_workspace(VectorIr& ir, llvm::Value* tile, const Geometry& geometry,
                                             const LayoutIr& layout);

}  // namespace sparsekiln::cpu
