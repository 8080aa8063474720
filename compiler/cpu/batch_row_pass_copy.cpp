// How BatchRowPass copies the blocks of a chunk: widened, times their scales, without features that x has
// not.

#include "compiler/cpu/batch_row_pass.h"

namespace sparsekiln::cpu {

BatchRowPass::Value* BatchRowPass::copy_weight(Value* w, Value* begin, Value* end) const {
  return v_.loop("copied_step", begin, end, {v_.constant(0)}, [&](Value* step, const Values& now) -> Values {
    Value* next = v_.plus(now[0], v_.constant(1));
    if (!g_.block_scales) {
      copy_step(w, step, now[0], nullptr);
      return {next};
    }
    Value* block_scale = block_scale_of(step);
    return {v_.choose("used", is_used(block_scale), now[0], [&] {
      copy_step(w, step, now[0], block_scale);
      return next;
    })};
  })[0];
}

/// Copies one block of w to place `number`, times its scale; null: unchanged.
void BatchRowPass::copy_step(Value* w, Value* step, Value* number, Value* block_scale) const {
  Value* to = v_.settled(v_.at(copied_, v_.times(number, copied_block_bytes())));
  copy_block(v_.settled(v_.at(w, v_.times(block_of(step), g_.block_bytes()))), to, block_scale);
  if (!g_.block_scales && !g_.cuts_in) return;
  Value* column = v_.entry(tables_.columns, step, "column");
  if (g_.block_scales)
    v_.store(ir_.CreateTrunc(column, ir_.getInt32Ty()), v_.at(used_columns_, v_.times(number, 4)), 4);
  if (g_.cuts_in) v_.branch("cut", is_last_column(column), [&] { zero_missing(to); });
}

/// Whether a step's column, or the place in a panel of a convolution's, is of the last block of x's features.
BatchRowPass::Value* BatchRowPass::is_last_column(Value* column) const {
  Value* last = layout_.number(LayoutNumber::last_column);
  if (!g_.correlation) return ir_.CreateICmpEQ(column, last);
  return ir_.CreateICmpSGE(column, v_.times(last, g_.block_words * g_.panel_rows()));
}

}  // namespace sparsekiln::cpu
