#include "compiler/cpu/batch_row_pass.h"

#include <algorithm>
#include <cstddef>

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

namespace sparsekiln::cpu {
namespace {

constexpr std::int32_t kUnroll = 8;  ///< words of k in one iteration of the inner loop
/// Bytes of the weight that are prefetched ahead where a chunk is one block: hardware prefetchers stop at the
/// end of a page, blocks do not.
constexpr std::int64_t kPrefetchAhead = 4096;
/// The fewest steps of a group that the weight is prefetched ahead.
constexpr std::int64_t kStepsAhead = 4;
constexpr std::int64_t kLine = 64;

}  // namespace

void BatchRowPass::begin() {
  GatheringPass::begin();
  if (g_.copies_weight()) copied_ = stack(g_.chunk * copied_block_bytes(), "copied");
  if (g_.block_scales) used_columns_ = stack(std::int64_t{4} * g_.chunk, "used_columns");
}

/// Whether one register tile is all of a block and a batch tile: its accumulators stay in registers for a
/// whole block row, and x is read once whether or not it is in L1.
bool BatchRowPass::has_one_tile() const {
  return g_.tile.outputs.size() == 1 && g_.tile_n == group_batch_rows() && g_.weights == 1 &&
         !g_.copies_weight();
}

void BatchRowPass::accumulate_in_registers(const ItemSteps& item) const {
  const Chunk row{.first = item.first,
                  .length = v_.constant(g_.chunk),
                  .begin = item.first,
                  .end = v_.plus(item.first, item.count),
                  .w = weights_.front(),
                  .panel = item.batch_tile.panel};
  for_each_tile([&](const Tile& tile) {
    const Values zeros(static_cast<std::size_t>(tile.outputs * g_.tile.vectors),
                       llvm::Constant::getNullValue(v_.floats(lanes_)));
    Values values = v_.loop("step", row.begin, row.end, zeros, [&](Value* step, const Values& now) {
      return block_product(step, row, tile, now);
    });
    store_sums(sums_address(item.sums, tile.output, tile.group), values, tile.outputs);
  });
}

void BatchRowPass::accumulate(const ItemSteps& item) const {
  if (has_one_tile()) return accumulate_in_registers(item);
  v_.branch("no_steps", ir_.CreateICmpEQ(item.count, v_.constant(0)), [&] { clear(item.sums); });
  for_each_chunk(item.first, item.count, [&](Value* begin, Value* end, Value* length) {
    Value* is_first = ir_.CreateICmpEQ(begin, item.first);
    for_each_weight(item.sums, [&](Value* w, Value* sums) {
      Chunk chunk{.first = begin,
                  .length = length,
                  .begin = begin,
                  .end = end,
                  .w = w,
                  .panel = item.batch_tile.panel};
      Value* copied = g_.copies_weight() ? copy_weight(w, begin, end) : nullptr;
      if (g_.block_scales) {
        chunk.begin = v_.constant(0);
        chunk.end = copied;
      }
      for_each_tile([&](const Tile& tile) {
        Value* address = sums_address(sums, tile.output, tile.group);
        Values before = load_sums(address, tile.outputs);
        for (Value*& sum : before)
          sum = ir_.CreateSelect(is_first, llvm::Constant::getNullValue(sum->getType()), sum);
        Values values =
            v_.loop("step", chunk.begin, chunk.end, std::move(before),
                    [&](Value* step, const Values& now) { return block_product(step, chunk, tile, now); });
        store_sums(address, values, tile.outputs);
      });
    });
  });
}

/// Accumulators are in registers for a span, and in L1 or L2 between an item's spans.
void BatchRowPass::accumulate_group(const BatchTile& batch_tile, Value* first, Value* last) const {
  v_.loop("span", first, last, [&](Value* span) {
    const auto field = [&](std::int32_t index, const char* label) {
      return v_.entry(tables_.slots, v_.plus(v_.times(span, kSpanFields), v_.constant(index)), label);
    };
    Value* group_sums = group_sums_of(field(0, "slot"));
    Value* begin = field(1, "first_step");
    const std::int64_t ahead =
        std::clamp<std::int64_t>(kPrefetchAhead / g_.block_bytes(), kStepsAhead, kColumnsBehind);
    Value* end = field(2, "end");
    for_each_weight(group_sums, [&](Value* w, Value* sums) {
      const Chunk steps{.first = begin,
                        .length = v_.constant(ahead),
                        .begin = begin,
                        .end = end,
                        .w = w,
                        .panel = batch_tile.panel};
      for_each_tile([&](const Tile& tile) {
        Value* address = v_.settled(sums_address(sums, tile.output, tile.group));
        Values values =
            v_.loop("step", steps.begin, steps.end, load_sums(address, tile.outputs),
                    [&](Value* step, const Values& now) { return block_product(step, steps, tile, now); });
        store_sums(address, values, tile.outputs);
      });
    });
  });
}

/// Calls `body` for every register tile: one loop for each run of equal tiles, and within it one over the
/// groups.
void BatchRowPass::for_each_tile(const std::function<void(const Tile&)>& body) const {
  const auto& outputs = g_.tile.outputs;
  const std::int64_t groups = g_.tile_n / group_batch_rows();
  std::int64_t base = 0;
  for (std::size_t begin = 0; begin < outputs.size();) {
    std::size_t end = begin;
    while (end < outputs.size() && outputs[end] == outputs[begin]) ++end;
    v_.loop("tile", v_.constant(0), v_.constant(static_cast<std::int64_t>(end - begin)), [&](Value* tile) {
      Value* output = v_.plus(v_.constant(base), v_.times(tile, outputs[begin]));
      Value* number = v_.plus(tile, v_.constant(static_cast<std::int64_t>(begin)));
      v_.loop("group", v_.constant(0), v_.constant(groups), [&](Value* group) {
        body({output, outputs[begin], group, v_.plus(v_.times(number, groups), group)});
      });
    });
    base += static_cast<std::int64_t>(end - begin) * outputs[begin];
    begin = end;
  }
}

/// Which this pass has written, of a chunk.
BatchRowPass::Value* BatchRowPass::used_column(Value* step) const {
  Value* column = v_.load(ir_.getInt32Ty(), v_.at(used_columns_, v_.times(step, 4)), 4);
  return ir_.CreateSExt(column, ir_.getInt64Ty(), "column");
}

/// The prefetching of one tile, which its `iterations` share, for step `scheduled` of the schedule.
BatchRowPass::Prefetch BatchRowPass::prefetch_of(Value* scheduled, const Chunk& chunk, const Tile& tile,
                                                 std::int64_t iterations) const {
  const std::int64_t shares =
      static_cast<std::int64_t>(g_.tile.outputs.size()) * (g_.tile_n / group_batch_rows()) * iterations;
  const auto lines = [&](std::int64_t bytes) { return (bytes + kLine * shares - 1) / (kLine * shares); };
  const std::int64_t x_block = panel_row_bytes() * g_.block_words;
  const bool apart = tables_.blocks != nullptr;  // not contiguous; a block begins anywhere in a line
  Prefetch prefetch{};
  prefetch.w_lines = lines(g_.block_bytes() + (apart ? kLine : 0));
  // A group's x is in L2, and its steps are independent; that of a convolution is read again tap by tap.
  prefetch.x_lines = grouped() || g_.correlation ? 0 : lines(x_block);
  // Contiguous blocks are fetched some bytes ahead, others by their number.
  const std::int64_t w_ahead_bytes = g_.chunk == 1 ? kPrefetchAhead : g_.chunk * g_.block_bytes();
  // By columns every register tile reads all lines of a block, and its last lines are prefetched last.
  const bool one_ahead = g_.chunk == 1 || grouped();
  Value* later = v_.plus(scheduled, one_ahead ? chunk.length : v_.times(chunk.length, 2));
  Value* w_next =
      apart ? v_.beyond(chunk.w, v_.times(block_of(later), g_.block_bytes()))
            : v_.beyond(chunk.w, v_.plus(v_.times(scheduled, g_.block_bytes()), v_.constant(w_ahead_bytes)));
  prefetch.w_last = apart ? v_.beyond(w_next, g_.block_bytes() - 1) : nullptr;
  prefetch.w = w_next;
  prefetch.share = v_.times(tile.number, iterations);
  return prefetch;
}

/// Fetches one iteration's share, from `w` and `x` on.
void BatchRowPass::emit_prefetch(const Prefetch& prefetch, Value* w, Value* x) const {
  for (std::int64_t line = 0; line < prefetch.w_lines; ++line) {
    Value* next = v_.beyond(w, line * kLine);
    if (prefetch.w_last != nullptr)
      next = ir_.CreateSelect(ir_.CreateICmpULT(next, prefetch.w_last), next, prefetch.w_last);
    v_.prefetch(next);
  }
  for (std::int64_t line = 0; line < prefetch.x_lines; ++line) v_.prefetch(v_.beyond(x, line * kLine));
}

/// sums += one block times one group's x, kUnroll words of k an iteration.
BatchRowPass::Values BatchRowPass::block_product(Value* step, const Chunk& chunk, const Tile& tile,
                                                 Values sums) const {
  const WeightStrides strides = weight_strides(g_.order, tile.outputs, g_.block_out, g_.block_words);
  const std::int32_t unroll = std::min(kUnroll, g_.block_words);
  const std::int32_t iterations = g_.block_words / unroll;
  Value* scheduled =
      g_.block_scales ? v_.plus(chunk.first, step) : step;  // what is not used shifts it: a hint
  Value* column = g_.block_scales ? used_column(step) : v_.entry(tables_.columns, step, "column");
  Value* next_column = v_.entry(tables_.columns, v_.plus(scheduled, chunk.length), "next_column");
  Value* w = tile_weight(step, chunk, tile);
  Value* x = v_.at(chunk.panel,
                   v_.plus(panel_offset(column), v_.times(tile.group, std::int64_t{4} * group_batch_rows())),
                   "x.tile");
  const Prefetch ahead = prefetch_of(scheduled, chunk, tile, iterations);

  // Addresses are carried, so that every load of an iteration is one register and a constant away.
  const std::size_t sum_count = sums.size();
  Values carried = std::move(sums);
  carried.push_back(v_.settled(w));
  carried.push_back(v_.settled(x));
  carried.push_back(v_.settled(v_.beyond(ahead.w, v_.times(ahead.share, ahead.w_lines * kLine))));
  carried.push_back(v_.settled(v_.beyond(v_.beyond(chunk.panel, panel_offset(next_column)),
                                         v_.times(ahead.share, ahead.x_lines * kLine))));
  const auto iteration = [&](Value*, const Values& now) {
    Values next(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(sum_count));
    Value* const w_now = now[sum_count];
    Value* const x_now = now[sum_count + 1];
    Value* const w_ahead = now[sum_count + 2];
    Value* const x_ahead = now[sum_count + 3];
    emit_prefetch(ahead, w_ahead, x_ahead);
    for (std::int32_t k = 0; k < unroll; ++k) {
      multiply(v_.at(w_now, 4 * k * strides.k), strides.output, v_.at(x_now, k * panel_row_bytes()),
               tile.outputs, next);
      next = v_.pinned(next);
    }
    next.push_back(v_.at(w_now, 4 * unroll * strides.k));
    next.push_back(v_.at(x_now, panel_row_bytes() * unroll));
    next.push_back(v_.beyond(w_ahead, ahead.w_lines * kLine));
    next.push_back(v_.beyond(x_ahead, ahead.x_lines * kLine));
    return next;
  };
  Values results = iterations == 1
                       ? iteration(v_.constant(0), carried)
                       : v_.loop("k", v_.constant(0), v_.constant(iterations), std::move(carried), iteration);
  results.resize(sum_count);
  return results;
}

/// Where a tile's weight of a step begins: in the copies of the chunk, or in the block itself.
BatchRowPass::Value* BatchRowPass::tile_weight(Value* step, const Chunk& chunk, const Tile& tile) const {
  Value* block = copied_ != nullptr
                     ? v_.at(copied_, v_.times(ir_.CreateSub(step, chunk.begin), copied_block_bytes()))
                     : v_.at(chunk.w, v_.times(block_of(step), g_.block_bytes()), "w.block");
  const bool by_columns = g_.order == WeightOrder::columns;
  return v_.at(block, v_.times(tile.output, by_columns ? 4 : std::int64_t{4} * g_.block_words), "w.tile");
}

/// One word of k: sums += the words of `outputs` rows of the weight, `w_output` words apart, times the
/// vectors of batch rows at x.
void BatchRowPass::multiply(Value* w, std::int64_t w_output, Value* x, std::int32_t outputs,
                            Values& sums) const {
  if (!g_.pairs()) return multiply_words(w, w_output, x, outputs, WordPart::whole, sums);
  if (v_.level.dot_bf16) return multiply_words(w, w_output, x, outputs, WordPart::pair, sums);
  // In turn, each with loads of its own: both halves of the words would leave no registers for accumulators.
  multiply_words(w, w_output, x, outputs, WordPart::lower, sums);
  sums = v_.pinned(sums);
  multiply_words(v_.settled(w), w_output, v_.settled(x), outputs, WordPart::upper, sums);
}

/// Words as factors of a product.
BatchRowPass::Value* BatchRowPass::factor(Value* words, WordPart part) const {
  switch (part) {
    case WordPart::whole:
      return words;
    case WordPart::pair:
      return ir_.CreateBitCast(
          words, llvm::FixedVectorType::get(ir_.getBFloatTy(), static_cast<unsigned>(2 * lanes_)));
    case WordPart::lower:
      words = ir_.CreateShl(words, v_.splat(ir_.getInt32(16), lanes_));
      break;
    case WordPart::upper:
      words = ir_.CreateAnd(words, v_.splat(ir_.getInt32(0xffff0000), lanes_));
      break;
  }
  return ir_.CreateBitCast(words, v_.floats(lanes_));
}

void BatchRowPass::multiply_words(Value* w, std::int64_t w_output, Value* x, std::int32_t outputs,
                                  WordPart part, Values& sums) const {
  const std::int32_t vectors = g_.tile.vectors;
  auto* word_type = part == WordPart::whole ? static_cast<llvm::Type*>(ir_.getFloatTy()) : ir_.getInt32Ty();
  auto* vector_type = llvm::FixedVectorType::get(word_type, static_cast<unsigned>(lanes_));
  const auto weight = [&](std::int32_t out) {
    return factor(v_.splat(v_.load(word_type, v_.at(w, 4 * out * w_output), 4), lanes_), part);
  };
  const auto batch_rows = [&](std::int32_t vector) {
    return factor(v_.load(vector_type, v_.at(x, std::int64_t{4} * lanes_ * vector), g_.panel_alignment()),
                  part);
  };
  const auto add = [&](std::int32_t out, std::int32_t vector, Value* wv, Value* xv) {
    Value*& sum = sums[static_cast<std::size_t>(out * vectors + vector)];
    sum = part == WordPart::pair
              ? ir_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {}, {sum, xv, wv})
              : v_.multiply_add(xv, wv, sum);
  };
  // The shorter side of the tile is held in registers, the longer one is loaded as it is used.
  Values held;
  if (vectors > outputs) {
    for (std::int32_t out = 0; out < outputs; ++out) held.push_back(weight(out));
    for (std::int32_t vector = 0; vector < vectors; ++vector) {
      Value* xv = batch_rows(vector);
      for (std::int32_t out = 0; out < outputs; ++out)
        add(out, vector, held[static_cast<std::size_t>(out)], xv);
    }
  } else {
    for (std::int32_t vector = 0; vector < vectors; ++vector) held.push_back(batch_rows(vector));
    for (std::int32_t out = 0; out < outputs; ++out) {
      Value* wv = weight(out);
      for (std::int32_t vector = 0; vector < vectors; ++vector)
        add(out, vector, wv, held[static_cast<std::size_t>(vector)]);
    }
  }
}

BatchRowPass::Value* BatchRowPass::sums_address(Value* sums, Value* output, Value* group) const {
  return v_.at(sums, v_.times(v_.plus(v_.times(output, g_.tile_n), v_.times(group, group_batch_rows())), 4),
               "sums.tile");
}

BatchRowPass::Values BatchRowPass::load_sums(Value* address, std::int32_t outputs) const {
  Values values;
  for (std::int32_t out = 0; out < outputs; ++out)
    for (std::int32_t vector = 0; vector < g_.tile.vectors; ++vector)
      values.push_back(v_.load(v_.floats(lanes_),
                               v_.at(address, std::int64_t{4} * (out * g_.tile_n + vector * lanes_)), 16));
  return values;
}

void BatchRowPass::store_sums(Value* address, const Values& values, std::int32_t outputs) const {
  std::size_t next = 0;
  for (std::int32_t out = 0; out < outputs; ++out)
    for (std::int32_t vector = 0; vector < g_.tile.vectors; ++vector)
      v_.store(values[next++], v_.at(address, std::int64_t{4} * (out * g_.tile_n + vector * lanes_)), 16);
}

void BatchRowPass::gather_sums(const BatchTile& /*batch_tile*/, Value* sums, Value* first,
                               Value* gathered) const {
  const std::int32_t side = std::min(8, lanes_);
  const std::int32_t squares = g_.block_out / side;
  const std::int64_t row_bytes = std::int64_t{4} * gathered_outputs();
  auto* type = v_.floats(side);
  v_.loop("turn", v_.constant(0), v_.constant(g_.tile_n / side), [&](Value* group) {
    Value* batch_row = v_.times(group, side);
    v_.loop("square", v_.constant(0), v_.constant(squares), [&](Value* square) {
      Value* output = v_.times(square, side);
      Value* from = v_.settled(v_.at(sums, v_.times(v_.plus(v_.times(output, g_.tile_n), batch_row), 4)));
      Value* to = v_.settled(
          v_.at(gathered, v_.plus(v_.times(batch_row, row_bytes), v_.times(v_.plus(output, first), 4))));
      Values rows;
      for (std::int32_t r = 0; r < side; ++r)
        rows.push_back(v_.load(type, v_.at(from, std::int64_t{4} * r * g_.tile_n), 16));
      rows = v_.transpose(rows);
      for (std::int32_t r = 0; r < side; ++r)
        v_.store(rows[static_cast<std::size_t>(r)], v_.at(to, r * row_bytes), 16);
    });
  });
}

void emit_batch_row_pass(VectorIr& ir, std::string_view name, const Geometry& geometry, LayoutIr& layout,
                         std::string_view pack) {
  BatchRowPass(ir, geometry, layout).emit(name, pack);
}

}  // namespace sparsekiln::cpu
