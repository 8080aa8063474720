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
  virtual void gather_sums(Value* sums, Value* first, Value* gathered) = 0;

  [[nodiscard]] std::int32_t gathered_outputs() const { return together() * g_.block_out; }

 private:
  void end() final;
  void store_outputs(Value* output_block) final;
  void gather(Value* first);
  void store_features(Value* row);
  void store_points(Value* row);
  void flush_waiting();
  void flush(Value* first_row, Value* rows);
  [[nodiscard]] Value* features_of(Value* row);
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
