#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>

#include "compiler/cpu/epilogue_ir.h"
#include "compiler/cpu/lattice_ir.h"
#include "compiler/cpu/passes.h"
#include "compiler/cpu/vector_ir.h"

namespace sparsekiln::cpu {

/// The frame of a pass that computes SpMM: it iterates over a worker's items, adds up the parts of a split
/// block row, and stores block rows that are complete. A derived class says how the steps of a block row are
/// accumulated and where its accumulators are until they are stored.
///
/// Members are set where a pass begins, and no function that emits code after that can change them: all are
/// const. What differs from tile to tile, from item to item or from weight to weight is an argument.
class RowPass {
 public:
  RowPass(VectorIr& v, const Geometry& geometry, LayoutIr& layout);
  virtual ~RowPass() = default;
  RowPass(const RowPass&) = delete;
  RowPass& operator=(const RowPass&) = delete;

  /// `pack`: a pass to be called first, for the same worker and batch tile, or for each strip; empty: none.
  void emit(std::string_view name, std::string_view pack);

 protected:
  using Value = llvm::Value;
  using Values = VectorIr::Values;

  /// The batch tile that is computed.
  struct BatchTile {
    Value* first_batch_row;  ///< or point, of a convolution
    Value* panel;            ///< its packed x
    Images images{};         ///< of a convolution's strip
  };
  /// The steps of an item, which are all of a block row or a part of it.
  struct ItemSteps {
    BatchTile batch_tile;
    Value* first;
    Value* count;
    Value* sums;  ///< where they are added up: Geometry::sums_bytes
  };
  /// A block row of y for one batch tile, all steps of which have been added up.
  struct CompleteRow {
    BatchTile batch_tile;
    Value* output_block;
    Value* sums;
  };

  /// Sets the members of a derived class, and allocates what it needs of the stack; called once, before
  /// everything.
  virtual void begin() {}
  /// Stores what store_outputs held back; called after the items of a tile.
  virtual void end(const BatchTile& /*batch_tile*/) const {}
  /// Writes the sums of an item's steps to item.sums.
  virtual void accumulate(const ItemSteps& item) const = 0;
  /// Adds the products of a group of items to the sums of each. `first` to before `last` are its steps, or
  /// its spans where Geometry::window_steps is not 0. Only where there are groups.
  virtual void accumulate_group(const BatchTile& /*batch_tile*/, Value* /*first*/, Value* /*last*/) const {}
  /// Writes the sums of a block row to y, the batch rows that exist, now or later.
  virtual void store_outputs(const CompleteRow& row) const = 0;

  // Blocks that are copied before they are multiplied (row_pass_copy.cpp)
  /// Copies a block, times `block_scale`; null: unchanged. See Geometry::copies_words.
  void copy_block(Value* from, Value* to, Value* block_scale) const;
  /// Zeroes the weights of a copied block of the last column for features that x does not have: they may hold
  /// anything.
  void zero_missing(Value* block) const;
  [[nodiscard]] std::int64_t copied_block_bytes() const {
    return g_.copied_word_bytes() * g_.block_out * g_.block_words;
  }
  [[nodiscard]] Value* block_of(Value* step) const;
  [[nodiscard]] Value* block_scale_of(Value* step) const;
  [[nodiscard]] Value* is_used(Value* block_scale) const;
  /// Floats of the weight times `block_scale`, rounded to its type; not widened again.
  [[nodiscard]] Value* times_block_scale(Value* values, Value* block_scale) const;

  [[nodiscard]] Value* stack(std::int64_t bytes, const char* name) const;
  /// Calls `body(begin, end, length)` for the chunks of `steps` steps from `first`, Geometry::chunk at most.
  /// Chunks are equally long, because a short remainder would cost as much as a whole chunk.
  void for_each_chunk(Value* first, Value* steps,
                      const std::function<void(Value*, Value*, Value*)>& body) const;
  /// Calls `body(weight, share)` for each of weights_, with its share of `sums`.
  void for_each_weight(Value* sums, const std::function<void(Value*, Value*)>& body) const;
  [[nodiscard]] bool grouped() const { return g_.group_items > 1; }
  /// The sums of an item of a group.
  [[nodiscard]] Value* group_sums_of(Value* slot) const;
  /// Zeroes Geometry::sums_bytes.
  void clear(Value* sums) const;
  /// Batch rows of a batch tile that exist, or points of a convolution's lattice.
  [[nodiscard]] Value* present_batch_rows(const BatchTile& batch_tile) const;
  /// Calls `body(batch_row, entry)` for those whose row of y, `entry`, exists.
  void for_each_entry(const BatchTile& batch_tile, Value* output_block,
                      const std::function<void(Value*, Value*)>& body) const;
  /// Calls `body(number, position, count)` for points of the tile that are neighbours in an image of y,
  /// channels-first: the first one's number in the tile, its position, and how many they are.
  void for_each_run(const BatchTile& batch_tile, Value* output_block,
                    const std::function<void(Value*, Value*, Value*)>& body) const;

  VectorIr& v_;
  llvm::IRBuilder<>& ir_;
  const Geometry& g_;
  LayoutIr& layout_;
  Tables tables_;
  std::int32_t lanes_;
  EpilogueIr epilogue_;
  Values weights_;  ///< W, and V of a glu pair, or the four of an LSTM's cell
  Value* n_ = nullptr;

 private:
  /// Opens the function, and sets all members.
  void begin_pass(std::string_view name, std::string_view pack);
  /// The strips of a batch tile of a convolution.
  void strips() const;
  /// The worker's items in one tile, whose x is packed.
  void items(const BatchTile& batch_tile) const;
  /// Has the x of a batch tile, or of a strip, packed where this worker is the only one to read it.
  void call_pack(Value* strip) const;
  /// The worker's groups, and the items that are part of a block row.
  void groups(const BatchTile& batch_tile) const;
  void item(const BatchTile& batch_tile, Value* number) const;
  void group(const BatchTile& batch_tile, Value* number) const;
  /// Adds up the parts of a block row, in item_sums_.
  void combine(Value* parts, Value* first_partial) const;
  /// Calls `body(number, row)` for the points of the tile whose row of y, among those of `images`, exists.
  void for_each_point(const BatchTile& batch_tile, const Images& images,
                      const std::array<Value*, 3>& residues,
                      const std::function<void(Value*, Value*)>& body) const;
  /// The residues of the class that a block row is of.
  [[nodiscard]] std::array<Value*, 3> residues_of_block(Value* output_block) const;

  llvm::Function* pack_ = nullptr;  ///< null: a pass of its own, or none
  TileWorkspace workspace_{};       ///< its panel is that of all strips
  Value* block_scales_ = nullptr;   ///< of all blocks; null: there are none
  Value* item_sums_ = nullptr;      ///< on the stack, Geometry::sums_bytes, of an item that is in no group
  Value* group_sums_ = nullptr;     ///< on the stack, Geometry::sums_bytes of each item of a group
};

}  // namespace sparsekiln::cpu
