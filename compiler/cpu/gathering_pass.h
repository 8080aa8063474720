#pragma once

#include <cstdint>

#include "compiler/cpu/row_pass.h"

namespace sparsekiln::cpu {

/// A pass that, where y is batch-major, holds the outputs of block rows back until those of neighboring block
/// rows fill two cache lines of y. Rows of y may all map to one set of the cache, and a line that is written
/// in halves would be fetched again for each half.
class GatheringPass : public RowPass {
 public:
  using RowPass::RowPass;

 protected:
  void begin() override;
  /// Copies the sums of one weight to [tile_n][gathered_outputs()], from output `first` on.
  virtual void gather_sums(const BatchTile& batch_tile, Value* sums, Value* first, Value* gathered) const = 0;

  [[nodiscard]] std::int32_t gathered_outputs() const { return together() * g_.block_out; }

 private:
  void end(const BatchTile& batch_tile) const final;
  void store_outputs(const CompleteRow& row) const final;
  /// Copies a row's sums of all weights, from output `first` on.
  void gather(const CompleteRow& row, Value* first) const;
  void store_features(const CompleteRow& row) const;
  void store_points(const CompleteRow& row) const;
  void flush_waiting(const BatchTile& batch_tile) const;
  void flush(const BatchTile& batch_tile, Value* first_row, Value* rows) const;
  [[nodiscard]] Value* features_of(Value* output_block) const;
  /// Block rows whose outputs are written together.
  [[nodiscard]] std::int32_t together() const;

  [[nodiscard]] std::int64_t gathered_bytes() const {  ///< of one weight
    return std::int64_t{4} * g_.tile_n * gathered_outputs();
  }

  Value* gathered_ = nullptr;       ///< [weights][tile_n][gathered_outputs()] on the stack
  Value* first_waiting_ = nullptr;  ///< i64 on the stack: the first block row that waits there
  Value* waiting_ = nullptr;        ///< i64 on the stack: how many do
};

}  // namespace sparsekiln::cpu
