// How passes copy blocks before they multiply them: widened, times their scales, without features that x has
// not.

#include <algorithm>

#include "compiler/cpu/row_pass.h"

namespace sparsekiln::cpu {

RowPass::Value* RowPass::block_of(Value* step) const {
  return tables_.blocks == nullptr ? step : v_.entry(tables_.blocks, step, "block");
}

RowPass::Value* RowPass::block_scale_of(Value* step) const {
  Value* number = layout_.has(kScaleOfStep) ? v_.entry(layout_.table(kScaleOfStep), step, "scale_number")
                                            : v_.quotient(block_of(step), std::max(1, g_.blocks_per_scale));
  return v_.load(ir_.getFloatTy(), v_.at(block_scales_, v_.times(number, 4)), 4, "block_scale");
}

RowPass::Value* RowPass::is_used(Value* block_scale) const {
  return ir_.CreateFCmpUNE(block_scale, llvm::ConstantFP::get(ir_.getFloatTy(), 0));
}

RowPass::Value* RowPass::times_block_scale(Value* values, Value* block_scale) const {
  const auto lanes = llvm::cast<llvm::FixedVectorType>(values->getType())->getNumElements();
  return v_.rounded_to(g_.dtype,
                       ir_.CreateFMul(values, v_.splat(block_scale, static_cast<std::int32_t>(lanes))));
}

void RowPass::copy_block(Value* from, Value* to, Value* block_scale) const {
  const bool moved = block_scale == nullptr && g_.copies_words();  // in units of 32 bits, whatever the type
  const std::int64_t from_bytes = moved ? 4 : static_cast<std::int64_t>(size_of(g_.dtype));
  const std::int64_t to_bytes = g_.copies_words() ? from_bytes : 4;
  const std::int64_t all = g_.block_bytes() / from_bytes;
  const std::int64_t vectors = std::min<std::int64_t>(4, all / lanes_);  // at a time
  const std::int64_t turn_elements = vectors * lanes_;
  const auto align = [&](std::int64_t bytes) {
    return static_cast<unsigned>(std::min<std::int64_t>(16, lanes_ * bytes));
  };
  const auto copied = [&](Value* address) -> Value* {
    if (moved) return v_.load(v_.floats(lanes_), address, 16);
    Value* values = v_.load_floats(g_.dtype, address, lanes_, align(from_bytes));
    if (block_scale == nullptr) return values;
    Value* elements = times_block_scale(values, block_scale);
    return g_.copies_words() ? elements : v_.widened(g_.dtype, elements);
  };
  v_.loop("copy", v_.constant(0), v_.constant(all / turn_elements), [&](Value* turn) {
    Value* element = v_.times(turn, turn_elements);
    for (std::int64_t vector = 0; vector < vectors; ++vector) {
      Value* at = v_.plus(element, v_.constant(vector * lanes_));
      v_.store(copied(v_.at(from, v_.times(at, from_bytes))), v_.at(to, v_.times(at, to_bytes)),
               align(to_bytes));
    }
  });
}

void RowPass::zero_missing(Value* block) const {
  // Packed for register tiles of one output, as small batches have them, a weight is in its own order.
  const bool by_tiles = g_.order == WeightOrder::packed && !g_.small_batch;
  const WeightOrder order = g_.order == WeightOrder::packed && !by_tiles ? WeightOrder::rows : g_.order;
  const std::vector<std::int32_t> whole = {g_.block_out};
  Value* inputs = layout_.number(LayoutNumber::last_inputs);
  Value* elements = v_.constant(g_.word_elements);
  Value* half = ir_.CreateSDiv(inputs, elements);  // a word of which a half is there, maybe
  Value* first = ir_.CreateSDiv(v_.plus(inputs, v_.constant(g_.word_elements - 1)), elements);
  const std::int64_t word_bytes = g_.copied_word_bytes();
  auto* word_type = ir_.getIntNTy(static_cast<unsigned>(8 * word_bytes));
  const auto align = static_cast<unsigned>(word_bytes);
  std::int64_t base = 0;  // of a tile, in words
  for (const std::int32_t outputs : by_tiles ? g_.tile.outputs : whole) {
    const WeightStrides strides = weight_strides(order, outputs, g_.block_out, g_.block_words);
    v_.loop("missing", v_.constant(0), v_.constant(outputs), [&](Value* output) {
      Value* row = v_.at(v_.at(block, word_bytes * base), v_.times(output, word_bytes * strides.output));
      const auto word_at = [&](Value* k) { return v_.at(row, v_.times(k, word_bytes * strides.k)); };
      v_.loop("half", half, first, [&](Value* k) {
        Value* lower =
            ir_.CreateAnd(v_.load(word_type, word_at(k), align), llvm::ConstantInt::get(word_type, 0xffff));
        v_.store(lower, word_at(k), align);
      });
      v_.loop("missing_word", first, v_.constant(g_.block_words),
              [&](Value* k) { v_.store(llvm::ConstantInt::get(word_type, 0), word_at(k), align); });
    });
    base += std::int64_t{outputs} * g_.block_words;
  }
}

}  // namespace sparsekiln::cpu
