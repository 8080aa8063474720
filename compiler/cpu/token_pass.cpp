#include <algorithm>
#include <cstddef>

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "compiler/cpu/call.h"
#include "compiler/cpu/gathering_pass.h"
#include "compiler/cpu/packed_weight.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::int32_t kUnroll = 8;  ///< words of k in one turn of the inner loop
/// Bytes of the weight, where a chunk is one block; hardware prefetchers stop at a page, blocks lie across.
constexpr std::int64_t kPrefetchAhead = 4096;
/// Of a group: what is prefetched; W twice as far.
constexpr std::int64_t kStepsAhead = 8;
constexpr std::int64_t kLine = 64;

/// One pass under construction. Names: item = a worker's stretch of steps, step = one block, tile = `outputs`
/// of a block's rows in registers, group = `vectors` vectors of tokens.
class TokenPass final : public GatheringPass {
 public:
  using GatheringPass::GatheringPass;

 private:
  struct Tile {
    Value* output;  ///< its first one
    std::int32_t outputs;
    Value* group;
    Value* number;  ///< among the tiles and groups of a block
  };
  struct Chunk {
    Value* first;   ///< step of the schedule
    Value* length;  ///< in steps of the schedule
    Value* begin;   ///< what its steps are numbered from, here and below: with gates from 0, used ones only
    Value* end;
  };
  /// Of the words that are multiplied: float32; bf16 pairs by the processor; or one half of them.
  enum class Part { whole, pair, lower, upper };

  void begin() override;
  void accumulate(Value* sums, Value* first, Value* steps) override;
  void accumulate_group(Value* first, Value* last) override;
  void gather_sums(Value* sums, Value* first, Value* gathered) override;
  void for_each_tile(const std::function<void(const Tile&)>& body);
  void repeat(std::string_view name, std::int64_t count, const std::function<void(Value*)>& body);
  Value* copy_weight(Value* begin, Value* end);
  void copy_block(Value* from, Value* to, Value* gate);
  void zero_missing(Value* block);
  Value* block_of(Value* step);
  Value* used_column(Value* step);
  Values block_product(Value* step, const Chunk& chunk, const Tile& tile, Values sums);
  void multiply(Value* w, std::int64_t w_output, Value* x, std::int32_t outputs, Values& sums);
  void multiply_words(Value* w, std::int64_t w_output, Value* x, std::int32_t outputs, Part part,
                      Values& sums);
  Value* sums_address(Value* sums, Value* output, Value* group);
  Values load_sums(Value* address, std::int32_t outputs);
  void store_sums(Value* address, const Values& values, std::int32_t outputs);
  [[nodiscard]] std::int32_t group_tokens() const { return g_.tile.vectors * lanes_; }
  [[nodiscard]] std::int64_t copied_block_bytes() const {
    return std::int64_t{4} * g_.block_out * g_.block_words;
  }

  Value* copied_ = nullptr;  ///< the blocks of a chunk as they are multiplied, in the order of the weight, as
                             ///< float32 or pairs; null: multiplied as they lie
  Value* gates_ = nullptr;
  Value* used_columns_ = nullptr;  ///< i32, of the chunk's blocks whose gate is not zero
};

void TokenPass::begin() {
  GatheringPass::begin();
  if (g_.copies_weight()) copied_ = stack(g_.chunk * copied_block_bytes(), "copied");
  if (!g_.gates) return;
  used_columns_ = stack(std::int64_t{4} * g_.chunk, "used_columns");
  gates_ = v_.argument(ir_.getPtrTy(), offsetof(Call, gates), "gates");
}

/// Chunk by chunk of the row, `g_.chunk` blocks at most: the chunk's x stays in L1 while every register tile
/// goes over it, with sums in registers through the chunk and in L1 between chunks.
void TokenPass::accumulate(Value* sums, Value* first, Value* steps) {
  clear(sums);
  for_each_chunk(first, steps, [&](Value* begin, Value* end, Value* length) {
    for_each_weight(sums, [&](Value* own) {
      Chunk chunk{begin, length, begin, end};
      Value* copied = g_.copies_weight() ? copy_weight(begin, end) : nullptr;
      if (g_.gates) {
        chunk.begin = v_.constant(0);
        chunk.end = copied;
      }
      for_each_tile([&](const Tile& tile) {
        Value* address = sums_address(own, tile.output, tile.group);
        Values values =
            v_.loop("step", chunk.begin, chunk.end, load_sums(address, tile.outputs),
                    [&](Value* step, const Values& now) { return block_product(step, chunk, tile, now); });
        store_sums(address, values, tile.outputs);
      });
    });
  });
}

/// Neighbouring steps are of different outputs and often of the same x: sums lie in L1 between them.
void TokenPass::accumulate_group(Value* first, Value* last) {
  const Chunk ahead{first, v_.constant(kStepsAhead), nullptr, nullptr};
  v_.loop("step", first, last, [&](Value* step) {
    Value* sums = group_sums_of(step);
    for_each_tile([&](const Tile& tile) {
      Value* address = v_.settled(sums_address(sums, tile.output, tile.group));
      store_sums(address, block_product(step, ahead, tile, load_sums(address, tile.outputs)), tile.outputs);
    });
  });
}

void TokenPass::repeat(std::string_view name, std::int64_t count, const std::function<void(Value*)>& body) {
  if (!grouped()) return v_.loop(name, v_.constant(0), v_.constant(count), body);
  for (std::int64_t i = 0; i < count; ++i) body(v_.constant(i));
}

/// Calls `body` for every register tile: one loop for each run of equal tiles, and within it one over the
/// groups; in a group of items without loops, for its blocks are small.
void TokenPass::for_each_tile(const std::function<void(const Tile&)>& body) {
  const auto& outputs = g_.tile.outputs;
  const std::int64_t groups = g_.tile_n / group_tokens();
  std::int64_t base = 0;
  for (std::size_t begin = 0; begin < outputs.size();) {
    std::size_t end = begin;
    while (end < outputs.size() && outputs[end] == outputs[begin]) ++end;
    repeat("tile", static_cast<std::int64_t>(end - begin), [&](Value* tile) {
      Value* output = v_.plus(v_.constant(base), v_.times(tile, outputs[begin]));
      Value* number = v_.plus(tile, v_.constant(static_cast<std::int64_t>(begin)));
      repeat("group", groups, [&](Value* group) {
        body({output, outputs[begin], group, v_.plus(v_.times(number, groups), group)});
      });
    });
    base += static_cast<std::int64_t>(end - begin) * outputs[begin];
    begin = end;
  }
}

/// Once for all register tiles, so that these need not convert what they broadcast. The number of blocks that
/// are used.
TokenPass::Value* TokenPass::copy_weight(Value* begin, Value* end) {
  const auto copy = [&](Value* step, Value* block, Value* number, Value* gate) {
    Value* to = v_.settled(v_.at(copied_, v_.times(number, copied_block_bytes())));
    copy_block(v_.settled(v_.at(w_, v_.times(block, g_.block_bytes()))), to, gate);
    if (!g_.gates && !g_.cuts_in) return;
    Value* column = v_.entry(tables_.columns, step, "column");
    if (g_.gates)
      v_.store(ir_.CreateTrunc(column, ir_.getInt32Ty()), v_.at(used_columns_, v_.times(number, 4)), 4);
    if (g_.cuts_in)
      v_.branch("cut", ir_.CreateICmpEQ(column, layout_.number(LayoutNumber::last_column)),
                [&] { zero_missing(to); });
  };
  return v_.loop("copied_step", begin, end, {v_.constant(0)}, [&](Value* step, const Values& now) -> Values {
    Value* block = block_of(step);
    Value* next = v_.plus(now[0], v_.constant(1));
    if (!g_.gates) {
      copy(step, block, now[0], nullptr);
      return {next};
    }
    Value* gate = v_.load(ir_.getFloatTy(), v_.at(gates_, v_.times(block, 4)), 4, "gate");
    Value* used = ir_.CreateFCmpUNE(gate, llvm::ConstantFP::get(ir_.getFloatTy(), 0));
    return {v_.choose("used", used, now[0], [&] {
      copy(step, block, now[0], gate);
      return next;
    })};
  })[0];
}

/// `gate` null: as it is.
void TokenPass::copy_block(Value* from, Value* to, Value* gate) {
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

/// Zeroes what a copied block of the last column has for features that x does not have: it may be anything.
void TokenPass::zero_missing(Value* block) {
  const bool packed = g_.order == WeightOrder::packed;
  const std::vector<std::int32_t> whole = {g_.block_out};
  Value* inputs = layout_.number(LayoutNumber::last_inputs);
  Value* elements = v_.constant(g_.word_elements);
  Value* half = ir_.CreateSDiv(inputs, elements);  // a word of which a half is there, maybe
  Value* first = ir_.CreateSDiv(v_.plus(inputs, v_.constant(g_.word_elements - 1)), elements);
  std::int64_t base = 0;  // of a tile, in words
  for (const std::int32_t outputs : packed ? g_.tile.outputs : whole) {
    const WeightStrides strides = weight_strides(g_.order, outputs, g_.block_out, g_.block_words);
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

TokenPass::Value* TokenPass::block_of(Value* step) {
  return tables_.blocks == nullptr ? step : v_.entry(tables_.blocks, step, "block");
}

/// Which this pass has written, of a chunk.
TokenPass::Value* TokenPass::used_column(Value* step) {
  Value* column = v_.load(ir_.getInt32Ty(), v_.at(used_columns_, v_.times(step, 4)), 4);
  return ir_.CreateSExt(column, ir_.getInt64Ty(), "column");
}

TokenPass::Values TokenPass::block_product(Value* step, const Chunk& chunk, const Tile& tile, Values sums) {
  const std::int64_t w_row = std::int64_t{4} * g_.block_words;
  const bool by_columns = g_.order == WeightOrder::columns;
  const WeightStrides w_strides = weight_strides(g_.order, tile.outputs, g_.block_out, g_.block_words);
  const std::int64_t x_row = std::int64_t{4} * g_.tile_n;
  const std::int64_t x_block = x_row * g_.block_words;
  const std::int32_t unroll = std::min(kUnroll, g_.block_words);
  const std::int32_t turns = g_.block_words / unroll;
  Value* scheduled = g_.gates ? v_.plus(chunk.first, step) : step;  // what is not used shifts it: a hint
  Value* column = g_.gates ? used_column(step) : v_.entry(tables_.columns, step, "column");
  Value* next_column = v_.entry(tables_.columns, v_.plus(scheduled, chunk.length), "next_column");
  Value* w_block = copied_ != nullptr
                       ? v_.at(copied_, v_.times(ir_.CreateSub(step, chunk.begin), copied_block_bytes()))
                       : v_.at(w_, v_.times(block_of(step), g_.block_bytes()), "w.block");
  Value* w = v_.at(w_block, v_.times(tile.output, by_columns ? 4 : w_row), "w.tile");
  Value* x = v_.at(workspace_.panel,
                   v_.plus(v_.times(column, x_block), v_.times(tile.group, std::int64_t{4} * group_tokens())),
                   "x.tile");

  // The register tiles of a chunk share the prefetching of the next one, and every turn its share of that.
  const std::int64_t shares =
      static_cast<std::int64_t>(g_.tile.outputs.size()) * (g_.tile_n / group_tokens()) * turns;
  const auto lines = [&](std::int64_t bytes) { return (bytes + kLine * shares - 1) / (kLine * shares); };
  const bool apart = tables_.blocks != nullptr;  // and a block begins anywhere in a line
  const std::int64_t w_lines = lines(g_.block_bytes() + (apart ? kLine : 0));
  const std::int64_t x_lines = grouped() ? 0 : lines(x_block);
  // Blocks that lie one behind the other are fetched some bytes ahead, others by their number.
  const std::int64_t w_ahead_bytes = g_.chunk == 1 ? kPrefetchAhead : g_.chunk * g_.block_bytes();
  // By columns every register tile reads all lines of a block, and its last ones are asked for last.
  Value* later = v_.plus(scheduled, g_.chunk == 1 ? chunk.length : v_.times(chunk.length, 2));
  Value* w_next =
      apart ? v_.beyond(w_, v_.times(block_of(later), g_.block_bytes()))
            : v_.beyond(w_, v_.plus(v_.times(scheduled, g_.block_bytes()), v_.constant(w_ahead_bytes)));
  Value* w_last = apart ? v_.beyond(w_next, g_.block_bytes() - 1) : nullptr;
  Value* share = v_.times(tile.number, turns);

  // Addresses are carried, so that every load of a turn is one register and a constant away.
  const std::size_t sum_count = sums.size();
  Values carried = std::move(sums);
  carried.push_back(v_.settled(w));
  carried.push_back(v_.settled(x));
  carried.push_back(v_.settled(v_.beyond(w_next, v_.times(share, w_lines * kLine))));
  carried.push_back(v_.settled(v_.beyond(v_.beyond(workspace_.panel, v_.times(next_column, x_block)),
                                         v_.times(share, x_lines * kLine))));
  const auto turn = [&](Value*, const Values& now) {
    Values acc(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(sum_count));
    Value* w_turn = now[sum_count];
    Value* x_turn = now[sum_count + 1];
    Value* w_ahead = now[sum_count + 2];
    Value* x_ahead = now[sum_count + 3];
    for (std::int64_t line = 0; line < w_lines; ++line) {
      Value* next = v_.beyond(w_ahead, line * kLine);
      if (apart) next = ir_.CreateSelect(ir_.CreateICmpULT(next, w_last), next, w_last);
      v_.prefetch(next);
    }
    for (std::int64_t line = 0; line < x_lines; ++line) v_.prefetch(v_.beyond(x_ahead, line * kLine));
    for (std::int32_t k = 0; k < unroll; ++k) {
      multiply(v_.at(w_turn, 4 * k * w_strides.k), w_strides.output, v_.at(x_turn, k * x_row), tile.outputs,
               acc);
      acc = v_.pinned(acc);
    }
    acc.push_back(v_.at(w_turn, 4 * unroll * w_strides.k));
    acc.push_back(v_.at(x_turn, x_row * unroll));
    acc.push_back(v_.beyond(w_ahead, w_lines * kLine));
    acc.push_back(v_.beyond(x_ahead, x_lines * kLine));
    return acc;
  };
  Values results = turns == 1 ? turn(v_.constant(0), carried)
                              : v_.loop("k", v_.constant(0), v_.constant(turns), std::move(carried), turn);
  results.resize(sum_count);
  return results;
}

/// One word of k: sums += the words of `outputs` rows of the weight, `w_output` words apart, times the
/// vectors of tokens at x.
void TokenPass::multiply(Value* w, std::int64_t w_output, Value* x, std::int32_t outputs, Values& sums) {
  if (!g_.pairs()) return multiply_words(w, w_output, x, outputs, Part::whole, sums);
  if (v_.level.dot_bf16) return multiply_words(w, w_output, x, outputs, Part::pair, sums);
  // One after the other, each with loads of its own: both halves of the words leave no register to the sums.
  multiply_words(w, w_output, x, outputs, Part::lower, sums);
  sums = v_.pinned(sums);
  multiply_words(v_.settled(w), w_output, v_.settled(x), outputs, Part::upper, sums);
}

void TokenPass::multiply_words(Value* w, std::int64_t w_output, Value* x, std::int32_t outputs, Part part,
                               Values& sums) {
  const std::int32_t vectors = g_.tile.vectors;
  auto* word_type = part == Part::whole ? static_cast<llvm::Type*>(ir_.getFloatTy()) : ir_.getInt32Ty();
  auto* vector_type = llvm::FixedVectorType::get(word_type, static_cast<unsigned>(lanes_));
  const auto factor = [&](Value* words) {
    switch (part) {
      case Part::whole:
        return words;
      case Part::pair:
        return ir_.CreateBitCast(
            words, llvm::FixedVectorType::get(ir_.getBFloatTy(), static_cast<unsigned>(2 * lanes_)));
      case Part::lower:
        words = ir_.CreateShl(words, v_.splat(ir_.getInt32(16), lanes_));
        break;
      case Part::upper:
        words = ir_.CreateAnd(words, v_.splat(ir_.getInt32(0xffff0000), lanes_));
        break;
    }
    return ir_.CreateBitCast(words, v_.floats(lanes_));
  };
  const auto weight = [&](std::int32_t out) {
    return factor(v_.splat(v_.load(word_type, v_.at(w, 4 * out * w_output), 4), lanes_));
  };
  const auto tokens = [&](std::int32_t vector) {
    return factor(v_.load(vector_type, v_.at(x, std::int64_t{4} * lanes_ * vector), 16));
  };
  const auto add = [&](std::int32_t out, std::int32_t vector, Value* wv, Value* xv) {
    Value*& sum = sums[static_cast<std::size_t>(out * vectors + vector)];
    sum = part == Part::pair
              ? ir_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {}, {sum, xv, wv})
              : v_.multiply_add(xv, wv, sum);
  };
  // The shorter side of the tile is held in registers, the longer one passes by.
  Values held;
  if (vectors > outputs) {
    for (std::int32_t out = 0; out < outputs; ++out) held.push_back(weight(out));
    for (std::int32_t vector = 0; vector < vectors; ++vector) {
      Value* xv = tokens(vector);
      for (std::int32_t out = 0; out < outputs; ++out)
        add(out, vector, held[static_cast<std::size_t>(out)], xv);
    }
  } else {
    for (std::int32_t vector = 0; vector < vectors; ++vector) held.push_back(tokens(vector));
    for (std::int32_t out = 0; out < outputs; ++out) {
      Value* wv = weight(out);
      for (std::int32_t vector = 0; vector < vectors; ++vector)
        add(out, vector, wv, held[static_cast<std::size_t>(vector)]);
    }
  }
}

TokenPass::Value* TokenPass::sums_address(Value* sums, Value* output, Value* group) {
  return v_.at(sums, v_.times(v_.plus(v_.times(output, g_.tile_n), v_.times(group, group_tokens())), 4),
               "sums.tile");
}

TokenPass::Values TokenPass::load_sums(Value* address, std::int32_t outputs) {
  Values values;
  for (std::int32_t out = 0; out < outputs; ++out)
    for (std::int32_t vector = 0; vector < g_.tile.vectors; ++vector)
      values.push_back(v_.load(v_.floats(lanes_),
                               v_.at(address, std::int64_t{4} * (out * g_.tile_n + vector * lanes_)), 16));
  return values;
}

void TokenPass::store_sums(Value* address, const Values& values, std::int32_t outputs) {
  std::size_t next = 0;
  for (std::int32_t out = 0; out < outputs; ++out)
    for (std::int32_t vector = 0; vector < g_.tile.vectors; ++vector)
      v_.store(values[next++], v_.at(address, std::int64_t{4} * (out * g_.tile_n + vector * lanes_)), 16);
}

void TokenPass::gather_sums(Value* sums, Value* first, Value* gathered) {
  const std::int32_t side = std::min(8, lanes_);
  const std::int32_t squares = g_.block_out / side;
  const std::int64_t row_bytes = std::int64_t{4} * gathered_outputs();
  auto* type = v_.floats(side);
  v_.loop("turn", v_.constant(0), v_.constant(g_.tile_n / side), [&](Value* group) {
    Value* token = v_.times(group, side);
    v_.loop("square", v_.constant(0), v_.constant(squares), [&](Value* square) {
      Value* output = v_.times(square, side);
      Value* from = v_.settled(v_.at(sums, v_.times(v_.plus(v_.times(output, g_.tile_n), token), 4)));
      Value* to = v_.settled(
          v_.at(gathered, v_.plus(v_.times(token, row_bytes), v_.times(v_.plus(output, first), 4))));
      Values rows;
      for (std::int32_t r = 0; r < side; ++r)
        rows.push_back(v_.load(type, v_.at(from, std::int64_t{4} * r * g_.tile_n), 16));
      rows = v_.transpose(rows);
      for (std::int32_t r = 0; r < side; ++r)
        v_.store(rows[static_cast<std::size_t>(r)], v_.at(to, r * row_bytes), 16);
    });
  });
}

}  // namespace

void emit_token_pass(VectorIr& ir, std::string_view name, const Geometry& geometry, LayoutIr& layout,
                     std::string_view pack) {
  TokenPass(ir, geometry, layout).emit(name, pack);
}

}  // namespace sparsekiln::cpu
