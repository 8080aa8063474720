#pragma once

#include <cstdint>

#include "compiler/cpu/row_pass.h"

namespace sparsekiln::cpu {

/// A pass over batch tiles of few batch rows, which reads x by batch rows: it takes block by block, so that
/// the weight is one stream, and multiplies each register tile of a block's outputs with the x of all batch
/// rows. Between blocks the accumulators of the tiles are in L1; those of a single tile stay in registers.
class SmallBatchPass : public RowPass {
 public:
  using RowPass::RowPass;

 protected:
  /// Sums in registers: eight keep two 4-cycle multiply-adders busy.
  static constexpr std::int32_t kChains = 8;
  static constexpr std::int64_t kLine = 64;

  /// The two factors of a product.
  struct Operands {
    Value* w;           ///< one of weights_
    Values batch_rows;  ///< of x
  };
  struct Block {
    Value* w;
    Value* ahead;  ///< what is to be prefetched while `w` is read: maybe no memory of the weight
    Values xs;     ///< of its columns, by batch row
    Value* block_scale = nullptr;  ///< null: there are none
  };

  /// Register tiles of a block.
  [[nodiscard]] virtual std::int32_t tiles() const = 0;
  /// Bytes of the weight from one tile to the next.
  [[nodiscard]] virtual std::int64_t tile_weight_bytes() const = 0;
  /// Lanes of a sum; a tile has kChains of them.
  [[nodiscard]] virtual std::int32_t sum_lanes() const = 0;
  [[nodiscard]] virtual Block locate(const Operands& operands, Value* step) const = 0;
  /// Adds the products of the tile of a block whose weight begins at block.w.
  [[nodiscard]] virtual Values multiply_tile(const Block& block, Values sums) const = 0;
  /// Adds up what is one output's: vectors_ → [tile_n][block_out].
  virtual void reduce(Value* sums) const = 0;

  void begin() override;
  void store_outputs(const CompleteRow& row) const final;
  [[nodiscard]] Values x_rows(const BatchTile& batch_tile) const;
  /// Bytes of a word of x as register tiles read it.
  [[nodiscard]] std::int64_t x_word_bytes() const { return g_.packs_x ? 4 : g_.word_bytes; }
  [[nodiscard]] DType x_type() const { return g_.packs_x ? DType::f32 : g_.dtype; }
  /// Floats of the weight, times their scale where there is one.
  [[nodiscard]] Value* scaled_floats(Value* values, Value* block_scale) const;
  [[nodiscard]] std::int64_t sum_bytes() const { return std::int64_t{4} * sum_lanes(); }

  Value* vectors_ = nullptr;  ///< [tile][kChains] sums

 private:
  void accumulate(const ItemSteps& item) const final;
  /// Writes the sums of an item's steps of one weight to `sums`.
  void accumulate_weight(const ItemSteps& item, const Operands& operands, Value* sums) const;
  void multiply_block(const Block& block) const;
  [[nodiscard]] Block prepared(const Operands& operands, Value* step, Value* block_scale) const;
  void store_features(const CompleteRow& row) const;
  [[nodiscard]] Values load_sums(Value* from) const;
  void store_sums(const Values& sums, Value* to) const;
  [[nodiscard]] std::int64_t tile_sums_bytes() const { return kChains * sum_bytes(); }

  Value* copied_ = nullptr;      ///< a block that is cut; null: there are none
  Value* transposed_ = nullptr;  ///< where y is feature-major: [weights][tile_n], the sums of an output
  Value* x_ = nullptr;
  Value* x_row_bytes_ = nullptr;
};

}  // namespace sparsekiln::cpu
