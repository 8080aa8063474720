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

  /// Allocates what a pass needs of the stack; called once, before everything.
  virtual void begin() {}
  /// Stores what store_outputs held back; called after the items of a tile.
  virtual void end() {}
  /// Writes the sums of `steps` steps from `first`, Geometry::sums_bytes of them, to `sums`.
  virtual void accumulate(Value* sums, Value* first, Value* steps) = 0;
  /// Adds the products of a group of items to the sums of each. `first` to before `last` are its steps, or
  /// its spans where Geometry::window_steps is not 0. Only where there are groups.
  virtual void accumulate_group(Value* /*first*/, Value* /*last*/) {}
  /// Writes own_sums_ to a block row of y, the batch rows that exist, now or later.
  virtual void store_outputs(Value* output_block) = 0;

  // Blocks that are copied before they are multiplied (row_pass_copy.cpp)
  /// Copies a block, times `gate`; null: unchanged. See Geometry::copies_words.
  void copy_block(Value* from, Value* to, Value* gate);
  /// Zeroes the weights of a copied block of the last column for features that x does not have: they may hold
  /// anything.
  void zero_missing(Value* block);
  [[nodiscard]] std::int64_t copied_block_bytes() const {
    return g_.copied_word_bytes() * g_.block_out * g_.block_words;
  }
  [[nodiscard]] Value* block_of(Value* step);
  [[nodiscard]] Value* gate_of(Value* step);
  [[nodiscard]] Value* is_used(Value* gate);
  /// Floats of the weight times `gate`, rounded to its type; not widened again.
  [[nodiscard]] Value* gated(Value* values, Value* gate);

  [[nodiscard]] Value* stack(std::int64_t bytes, const char* name);
  /// Calls `body(begin, end, length)` for the chunks of `steps` steps from `first`, Geometry::chunk at most.
  /// Chunks are equally long, because a short remainder would cost as much as a whole chunk.
  void for_each_chunk(Value* first, Value* steps, const std::function<void(Value*, Value*, Value*)>& body);
  /// Calls `body(sums)` for each weight, with its share of `sums`.
  void for_each_weight(Value* sums, const std::function<void(Value*)>& body);
  [[nodiscard]] bool grouped() const { return g_.group_items > 1; }
  /// The sums of an item of a group.
  [[nodiscard]] Value* group_sums_of(Value* slot);
  /// Zeroes Geometry::sums_bytes.
  void clear(Value* sums);
  /// Batch rows of this batch tile that exist, or points of a convolution's lattice.
  [[nodiscard]] Value* present_batch_rows();
  /// Calls `body(batch_row, entry)` for those whose row of y, `entry`, exists.
  void for_each_entry(Value* output_block, const std::function<void(Value*, Value*)>& body);
  /// Calls `body(number, position, count)` for points of the tile that are neighbours in an image of y,
  /// channels-first: the first one's number in the tile, its position, and how many they are.
  void for_each_run(Value* output_block, const std::function<void(Value*, Value*, Value*)>& body);

  VectorIr& v_;
  llvm::IRBuilder<>& ir_;
  const Geometry& g_;
  LayoutIr& layout_;
  Tables tables_;
  std::int32_t lanes_;
  EpilogueIr epilogue_;
  Value* w_ = nullptr;  ///< the weight that is multiplied: one of weights_
  Values weights_;      ///< W, and V of a glu pair, or the four of an LSTM's cell
  Value* n_ = nullptr;
  Value* first_batch_row_ = nullptr;  ///< or point, of a convolution
  TileWorkspace workspace_{};
  Value* own_sums_ = nullptr;  ///< Geometry::sums_bytes on the stack
  Value* gates_ = nullptr;     ///< of all blocks; null: there are none

 private:
  /// The strips of a batch tile of a convolution.
  void strips();
  /// The worker's items in one tile, whose first_batch_row_ and panel are set.
  void tile();
  /// Has the x of a batch tile, or of a strip, packed where this worker is the only one to read it.
  void call_pack(Value* strip);
  /// Computes the items from number `first` to before `end`.
  void items(Value* first, Value* end);
  void item(Value* number);
  void group(Value* number);
  void combine(Value* parts, Value* first_partial);
  /// Calls `body(number, row)` for the points of the tile whose row of y, among those of `images`, exists.
  void for_each_point(const Images& images, const std::array<Value*, 3>& residues,
                      const std::function<void(Value*, Value*)>& body);
  /// The residues of the class that a block row is of.
  [[nodiscard]] std::array<Value*, 3> residues_of_block(Value* output_block);

  llvm::Function* pack_ = nullptr;  ///< null: a pass of its own, or none
  Images images_{};                 ///< of a convolution's strip
  Value* group_sums_ = nullptr;     ///< on the stack, Geometry::sums_bytes of each item of a group
};

}  // namespace sparsekiln::cpu
