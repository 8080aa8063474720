// How passes copy blocks before they multiply them: widened, times their gates, without features that x has
// not.

#include <algorithm>
#include <cstddef>

#include "compiler/cpu/packed_weight.h"
#include "compiler/cpu/row_pass.h"

namespace sparsekiln::cpu {

RowPass::Value* RowPass::block_of(Value* step) {
  return tables_.blocks == nullptr ? step : v_.entry(tables_.blocks, step, "block");
}

RowPass::Value* RowPass::gate_of(Value* step) {
  return v_.load(ir_.getFloatTy(), v_.at(gates_, v_.times(block_of(step), 4)), 4, "gate");
}

RowPass::Value* RowPass::is_used(Value* gate) {
  return ir_.CreateFCmpUNE(gate, llvm::ConstantFP::get(ir_.getFloatTy(), 0));
}

void RowPass::copy_block(Value* from, Value* to, Value* gate) {
  const bool moved = gate == nullptr && g_.word_bytes == 4;
  const std::int32_t elements = moved ? 1 : g_.word_elements;  // of a word
  const std::int64_t element_bytes = g_.word_bytes / elements;
  const std::int64_t all = std::int64_t{g_.block_out} * g_.block_words * elements;
  const std::int64_t vectors = std::min<std::int64_t>(4, all / lanes_);  // at a time
  const std::int64_t turn_elements = vectors * lanes_;
  const auto align = [&](std::int64_t bytes) {
    return static_cast<unsigned>(std::min<std::int64_t>(16, lanes_ * bytes));
  };
  const auto copied = [&](Value* address) -> Value* {
    if (moved) return v_.load(v_.floats(lanes_), address, 16);
    Value* values = v_.load_floats(g_.dtype, address, lanes_, align(element_bytes));
    if (gate == nullptr) return values;
    Value* scaled = v_.rounded_to(g_.dtype, ir_.CreateFMul(values, v_.splat(gate, lanes_)));
    return g_.pairs() ? scaled : v_.widened(g_.dtype, scaled);
  };
  v_.loop("copy", v_.constant(0), v_.constant(all / turn_elements), [&](Value* turn) {
    Value* element = v_.times(turn, turn_elements);
    for (std::int64_t vector = 0; vector < vectors; ++vector) {
      Value* at = v_.plus(element, v_.constant(vector * lanes_));
      v_.store(copied(v_.at(from, v_.times(at, element_bytes))), v_.at(to, v_.times(at, 4 / elements)),
               align(4 / elements));
    }
  });
}

void RowPass::zero_missing(Value* block) {
  // Packed for register tiles of one output, as small batches have them, a weight is in its own order.
  const bool by_tiles = g_.order == WeightOrder::packed && !g_.small_batch;
  const WeightOrder order = g_.order == WeightOrder::packed && !by_tiles ? WeightOrder::rows : g_.order;
  const std::vector<std::int32_t> whole = {g_.block_out};
  Value* inputs = layout_.number(LayoutNumber::last_inputs);
  Value* elements = v_.constant(g_.word_elements);
  Value* half = ir_.CreateSDiv(inputs, elements);  // a word of which a half is there, maybe
  Value* first = ir_.CreateSDiv(v_.plus(inputs, v_.constant(g_.word_elements - 1)), elements);
  std::int64_t base = 0;  // of a tile, in words
  for (const std::int32_t outputs : by_tiles ? g_.tile.outputs : whole) {
    const WeightStrides strides = weight_strides(order, outputs, g_.block_out, g_.block_words);
    v_.loop("missing", v_.constant(0), v_.constant(outputs), [&](Value* output) {
      Value* row = v_.at(v_.at(block, 4 * base), v_.times(output, 4 * strides.output));
      v_.loop("half", half, first, [&](Value* k) {
        Value* word = v_.at(row, v_.times(k, 4 * strides.k));
        v_.store(ir_.CreateAnd(v_.load(ir_.getInt32Ty(), word, 4), ir_.getInt32(0xffff)), word, 4);
      });
      v_.loop("missing_word", first, v_.constant(g_.block_words),
              [&](Value* k) { v_.store(ir_.getInt32(0), v_.at(row, v_.times(k, 4 * strides.k)), 4); });
    });
    base += std::int64_t{outputs} * g_.block_words;
  }
}

}  // namespace sparsekiln::cpu
