#pragma once

#include <cstdint>
#include <functional>

#include "compiler/cpu/gathering_pass.h"

namespace sparsekiln::cpu {

// clang-format off
/// SpMM with the lanes of a vector along batch rows. A worker computes one block row of y for one batch tile
/// at a time, from the panel that the pack pass made of x:
///
///                   panel of x, [word of k][tile_n]
///                   +---------+---------+
///                   | group 0 | group 1 | ...   tile_n = all groups of the batch tile
///                   +---------+---------+
///   W, one block         |         |
///   +-----------+   +----v----+----v----+
///   | tile 0    |-->| sums    | sums    | ...
///   +-----------+   +---------+---------+
///   | tile 1    |-->| sums    | sums    | ...
///   +-----------+   +---------+---------+
///
/// A *group* is tile.vectors vectors of `lanes` batch rows. A register *tile* is `outputs` rows of the block
/// times one group; its accumulators ("sums") are in registers. Each word of W is broadcast over the lanes.
///
///   for each chunk of the block row's steps (a *step* is one block; the x of a chunk fits L1)
///     for each weight (W, and V of a GLU)
///       copy_weight       where blocks are converted, scaled or partial: once for all register tiles
///       for each register tile and group
///         load_sums       accumulators are in L1 between chunks; the first chunk begins with zeros
///         for each step   block_product: for each word of k, multiply
///         store_sums
///
/// Where one tile is all of a block and a batch tile, its sums stay in registers for a whole block row
/// (accumulate_in_registers), and there are no chunks.
///
/// Small blocks by columns are taken in the order of W instead (accumulate_group), many items together, whose
/// accumulators are in L2:
///
///   for each span of a group (steps of one item, next to each other within a window of W that fits L2)
///     for each register tile and group of batch rows
///       load_sums, block_product for each step, store_sums
// clang-format on
class BatchRowPass final : public GatheringPass {
 public:
  using GatheringPass::GatheringPass;

 private:
  /// A register tile of one block.
  struct Tile {
    Value* output;  ///< its first one
    std::int32_t outputs;
    Value* group;
    Value* number;  ///< among the tiles and groups of a block
  };
  /// Steps that register tiles go over with their accumulators in registers: of a chunk, whose blocks are in
  /// L1, or of a span.
  struct Chunk {
    Value* first;   ///< step of the schedule
    Value* length;  ///< in steps of the schedule
    Value* begin;   ///< what its steps are numbered from, here and below: from 0 where there are block scales
    Value* end;
    Value* w;  ///< the weight that is multiplied: one of weights_
    Value* panel;
  };
  /// Which part of 32-bit words is multiplied: all of a float32; a pair of bf16 by one instruction; one half.
  enum class WordPart { whole, pair, lower, upper };
  /// What the register tiles of a chunk prefetch together of the next one, an equal share in each iteration.
  struct Prefetch {
    std::int64_t w_lines;  ///< cache lines of the weight, an iteration
    std::int64_t x_lines;  ///< of x
    Value* w;              ///< where the next chunk's weight begins
    Value* share;          ///< the number of this tile's first share
    Value* w_last;         ///< the last byte of the weight to fetch; null where blocks are contiguous
  };

  // RowPass
  void begin() override;
  void accumulate(const ItemSteps& item) const override;
  void accumulate_in_registers(const ItemSteps& item) const;
  [[nodiscard]] bool has_one_tile() const;
  void accumulate_group(const BatchTile& batch_tile, Value* first, Value* last) const override;
  void gather_sums(const BatchTile& batch_tile, Value* sums, Value* first, Value* gathered) const override;

  // Loops over register tiles
  void for_each_tile(const std::function<void(const Tile&)>& body) const;

  // Blocks that are copied before they are multiplied (batch_row_pass_copy.cpp)
  /// Copies the blocks of w, of the steps of a chunk, that are used, once for all register tiles, which then
  /// need not convert what they broadcast. Returns the number of these blocks.
  [[nodiscard]] Value* copy_weight(Value* w, Value* begin, Value* end) const;
  void copy_step(Value* w, Value* step, Value* number, Value* block_scale) const;
  [[nodiscard]] Value* is_last_column(Value* column) const;
  [[nodiscard]] Value* used_column(Value* step) const;

  // The product of one block and one register tile
  [[nodiscard]] Values block_product(Value* step, const Chunk& chunk, const Tile& tile, Values sums) const;
  [[nodiscard]] Value* tile_weight(Value* step, const Chunk& chunk, const Tile& tile) const;
  [[nodiscard]] Prefetch prefetch_of(Value* scheduled, const Chunk& chunk, const Tile& tile,
                                     std::int64_t iterations) const;
  void emit_prefetch(const Prefetch& prefetch, Value* w, Value* x) const;
  void multiply(Value* w, std::int64_t w_output, Value* x, std::int32_t outputs, Values& sums) const;
  void multiply_words(Value* w, std::int64_t w_output, Value* x, std::int32_t outputs, WordPart part,
                      Values& sums) const;
  [[nodiscard]] Value* factor(Value* words, WordPart part) const;

  // Accumulators in L1, [output][tile_n]
  [[nodiscard]] Value* sums_address(Value* sums, Value* output, Value* group) const;
  [[nodiscard]] Values load_sums(Value* address, std::int32_t outputs) const;
  void store_sums(Value* address, const Values& values, std::int32_t outputs) const;
  /// From one word of k to the next in the panel.
  [[nodiscard]] std::int64_t panel_row_bytes() const { return 4 * g_.panel_rows(); }
  /// The offset in the panel of what `column` of the schedule's table stands for.
  [[nodiscard]] Value* panel_offset(Value* column) const {
    return v_.times(column, g_.correlation ? 4 : panel_row_bytes() * g_.block_words);
  }
  [[nodiscard]] std::int32_t group_batch_rows() const { return g_.tile.vectors * lanes_; }

  /// The blocks of a chunk as they are multiplied, in the order of the weight, as float32 or pairs; null
  /// where blocks are multiplied in place.
  Value* copied_ = nullptr;
  Value* used_columns_ = nullptr;  ///< i32, of the chunk's blocks whose scale is not zero
};

}  // namespace sparsekiln::cpu
