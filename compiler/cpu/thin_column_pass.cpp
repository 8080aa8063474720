#include <algorithm>

#include "compiler/cpu/thin_pass.h"

namespace sparsekiln::cpu {
namespace {

/// Bytes of blocks between the one that is read and the one that is prefetched: blocks of a column of W lie
/// apart, where no hardware prefetcher finds them.
constexpr std::int64_t kPrefetchAhead = 4096;
constexpr std::int32_t kUnroll = 8;  ///< words of k in one turn of the inner loop: blocks have a multiple

/// Lanes are outputs; a register tile has all tokens, as many vectors of outputs as make kChains sums with
/// them and, where a block has fewer, several chains of k for each.
class ThinColumnPass final : public ThinPass {
 public:
  using ThinPass::ThinPass;

 private:
  void begin() override;
  [[nodiscard]] std::int32_t tiles() const override { return g_.block_out / tile_outputs(); }
  [[nodiscard]] std::int64_t tile_weight_bytes() const override {
    return std::int64_t{g_.word_bytes} * tile_outputs();
  }
  [[nodiscard]] std::int32_t sum_lanes() const override { return std::min(lanes_, g_.block_out); }
  Block locate(const Values& tokens, Value* step) override;
  [[nodiscard]] Values multiply_tile(const Block& block, Values sums) override;
  void multiply_turn(const Block& turn, Values& sums);
  void items(Value* first, Value* behind) override;
  void group(Value* number);
  void group_step(Value* step, const Values& tokens);
  void reduce(Value* sums) override;
  [[nodiscard]] Value* block_address(Value* step);
  [[nodiscard]] Values widened(const Values& xs);

  [[nodiscard]] std::int32_t vectors() const {
    return std::min(kChains / g_.tile_n, g_.block_out / sum_lanes());
  }
  [[nodiscard]] bool grouped() const { return tables_.groups != nullptr; }
  [[nodiscard]] std::int32_t chains() const { return grouped() ? 1 : kChains / (g_.tile_n * vectors()); }
  [[nodiscard]] std::int32_t tile_outputs() const { return vectors() * sum_lanes(); }
  /// Of one word of k, all outputs.
  [[nodiscard]] std::int64_t column_bytes() const { return std::int64_t{g_.word_bytes} * g_.block_out; }
  [[nodiscard]] std::size_t sum_of(std::int32_t chain, std::int32_t token, std::int32_t vector) const {
    return static_cast<std::size_t>((chain * g_.tile_n + token) * vectors() + vector);
  }

  Value* group_sums_ = nullptr;  ///< of each item of a group, [tile_n][block_out]; null: no groups
  Value* widened_ = nullptr;     ///< x of one block, [tile_n][block_words] float32; null: not needed
};

void ThinColumnPass::begin() {
  ThinPass::begin();
  if (grouped()) group_sums_ = stack(g_.group_items * g_.sums_bytes, "group_sums");
  if (g_.widens()) widened_ = stack(std::int64_t{4} * g_.block_words * g_.tile_n, "widened");
}

ThinPass::Value* ThinColumnPass::block_address(Value* step) {
  Value* number = tables_.blocks == nullptr ? step : v_.entry(tables_.blocks, step, "block");
  return v_.settled(v_.beyond(w_, v_.times(number, g_.block_bytes())));
}

ThinPass::Block ThinColumnPass::locate(const Values& tokens, Value* step) {
  const std::int64_t steps_ahead =
      std::clamp<std::int64_t>(kPrefetchAhead / g_.block_bytes(), 1, kColumnsBehind);
  Block block{block_address(step), block_address(v_.plus(step, v_.constant(steps_ahead))), {}};
  Value* x =
      v_.times(v_.entry(tables_.columns, step, "column"), std::int64_t{g_.word_bytes} * g_.block_words);
  for (Value* token : tokens) block.xs.push_back(v_.settled(v_.at(token, x)));
  if (g_.widens()) block.xs = widened(block.xs);
  return block;
}

/// What is broadcast word by word is widened by vectors before.
ThinPass::Values ThinColumnPass::widened(const Values& xs) {
  const std::int32_t lanes = std::min(8, lanes_);
  Values result;
  for (std::size_t token = 0; token < xs.size(); ++token) {
    const std::int64_t row = std::int64_t{4} * g_.block_words * static_cast<std::int64_t>(token);
    result.push_back(v_.settled(v_.at(widened_, row)));
    for (std::int64_t k = 0; k < g_.block_words; k += lanes) {
      const unsigned align = g_.aligned(std::int64_t{g_.word_bytes} * lanes);
      v_.store(v_.load_floats(g_.dtype, v_.at(xs[token], g_.word_bytes * k), lanes, align),
               v_.at(result.back(), 4 * k), 16);
    }
  }
  return result;
}

ThinPass::Values ThinColumnPass::multiply_tile(const Block& block, Values sums) {
  const std::size_t count = sums.size();
  Values carried = std::move(sums);
  carried.push_back(block.w);
  carried.push_back(block.ahead);
  carried.insert(carried.end(), block.xs.begin(), block.xs.end());
  const auto turn = [&](Value*, const Values& now) {
    const auto behind_sums = now.begin() + static_cast<std::ptrdiff_t>(count);
    Values next(now.begin(), behind_sums);
    const Block at{behind_sums[0], behind_sums[1], Values(behind_sums + 2, now.end())};
    multiply_turn(at, next);
    next.push_back(v_.at(at.w, kUnroll * column_bytes()));
    next.push_back(v_.beyond(at.ahead, kUnroll * column_bytes()));
    for (Value* x : at.xs) next.push_back(v_.at(x, std::int64_t{4} * kUnroll));
    return next;
  };
  const std::int32_t turns = g_.block_words / kUnroll;
  Values results = turns == 1 ? turn(nullptr, carried)
                              : v_.loop("k", v_.constant(0), v_.constant(turns), std::move(carried), turn);
  results.resize(count);
  return results;
}

void ThinColumnPass::multiply_turn(const Block& turn, Values& sums) {
  const std::int64_t vector_bytes = std::int64_t{g_.word_bytes} * sum_lanes();
  std::int64_t prefetched = -1;  // the last line
  for (std::int32_t k = 0; k < kUnroll; ++k)
    for (std::int64_t at = 0; at < tile_weight_bytes(); at += vector_bytes) {
      const std::int64_t line = (k * column_bytes() + at) / kLine;
      if (line == prefetched) continue;
      prefetched = line;
      v_.prefetch(v_.beyond(turn.ahead, line * kLine));
    }
  for (std::int32_t k = 0; k < kUnroll; ++k) {
    Values weight;
    for (std::int32_t vector = 0; vector < vectors(); ++vector)
      weight.push_back(v_.load_floats(g_.dtype, v_.at(turn.w, k * column_bytes() + vector * vector_bytes),
                                      sum_lanes(),
                                      static_cast<unsigned>(std::min<std::int64_t>(16, vector_bytes))));
    for (std::int32_t token = 0; token < g_.tile_n; ++token) {
      Value* word = v_.load(ir_.getFloatTy(), v_.at(turn.xs[static_cast<std::size_t>(token)], 4 * k), 4);
      Value* broadcast = v_.splat(word, sum_lanes());
      for (std::int32_t vector = 0; vector < vectors(); ++vector) {
        Value*& sum = sums[sum_of(k % chains(), token, vector)];
        sum = v_.multiply_add(broadcast, weight[static_cast<std::size_t>(vector)], sum);
      }
    }
    sums = v_.pinned(sums);
  }
}

void ThinColumnPass::items(Value* first, Value* behind) {
  if (!grouped()) return ThinPass::items(first, behind);
  Value* begin = v_.entry(tables_.group_begin, v_.worker, "groups.begin");
  Value* end = v_.entry(tables_.group_begin, v_.plus(v_.worker, v_.constant(1)), "groups.end");
  Value* own_sums = own_sums_;
  v_.loop("group", begin, end, [&](Value* number) {
    Value* only = v_.entry(tables_.groups, v_.times(number, kGroupFields), "first_item");
    Value* parts = v_.entry(tables_.items, v_.plus(v_.times(only, kItemFields), v_.constant(4)), "parts");
    Value* whole = ir_.CreateICmpEQ(parts, v_.constant(1), "whole");
    v_.branch("part", ir_.CreateNot(whole), [&] { item(only); });
    v_.branch("rows", whole, [&] { group(number); });
    own_sums_ = own_sums;
  });
}

void ThinColumnPass::group(Value* number) {
  const auto field = [&](std::int32_t index, const char* label) {
    return v_.entry(tables_.groups, v_.plus(v_.times(number, kGroupFields), v_.constant(index)), label);
  };
  Value* first_item = field(0, "first_item");
  Value* count = field(1, "items");
  Value* first = field(2, "first_step");
  Value* last = v_.plus(first, field(3, "steps"));
  const Values tokens = token_rows();
  v_.loop("clear", v_.constant(0), count,
          [&](Value* slot) { clear(v_.at(group_sums_, v_.times(slot, g_.sums_bytes))); });
  v_.loop("step", first, last, [&](Value* step) { group_step(step, tokens); });
  v_.loop("stored", v_.constant(0), count, [&](Value* slot) {
    own_sums_ = v_.at(group_sums_, v_.times(slot, g_.sums_bytes));
    store_outputs(v_.entry(tables_.items, v_.times(v_.plus(first_item, slot), kItemFields), "output"));
  });
}

/// Neighbouring steps are of different outputs: one chain each keeps the multiply-adders busy.
void ThinColumnPass::group_step(Value* step, const Values& tokens) {
  const Block block = locate(tokens, step);
  Value* slot = v_.entry(tables_.slots, step, "slot");
  Value* sums = v_.settled(v_.at(group_sums_, v_.times(slot, g_.sums_bytes)));
  const auto one_tile = [&](Value* w, Value* ahead, Value* to) {
    const auto address = [&](std::size_t i) {
      const auto token = static_cast<std::int64_t>(i) / vectors();
      const auto vector = static_cast<std::int64_t>(i) % vectors();
      return v_.at(to, std::int64_t{4} * g_.block_out * token + vector * sum_bytes());
    };
    Values values;
    for (std::size_t i = 0; i < static_cast<std::size_t>(g_.tile_n * vectors()); ++i)
      values.push_back(v_.load(v_.floats(sum_lanes()), address(i), 16));
    values = multiply_tile({w, ahead, block.xs}, std::move(values));
    for (std::size_t i = 0; i < values.size(); ++i) v_.store(values[i], address(i), 16);
  };
  if (tiles() == 1) return one_tile(block.w, block.ahead, sums);
  v_.loop("tile", v_.constant(0), v_.constant(tiles()), [&](Value* tile) {
    Value* weight = v_.times(tile, tile_weight_bytes());
    one_tile(v_.at(block.w, weight), v_.beyond(block.ahead, weight),
             v_.at(sums, v_.times(tile, std::int64_t{4} * tile_outputs())));
  });
}

/// The chains of each output become one sum.
void ThinColumnPass::reduce(Value* sums) {
  auto* type = v_.floats(sum_lanes());
  v_.loop("reduce", v_.constant(0), v_.constant(tiles()), [&](Value* tile) {
    Value* from = v_.at(vectors_, v_.times(tile, kChains * sum_bytes()));
    Value* to = v_.at(sums, v_.times(tile, std::int64_t{4} * tile_outputs()));
    for (std::int32_t token = 0; token < g_.tile_n; ++token)
      for (std::int32_t vector = 0; vector < vectors(); ++vector) {
        Values parts;
        for (std::int32_t chain = 0; chain < chains(); ++chain)
          parts.push_back(v_.load(
              type, v_.at(from, static_cast<std::int64_t>(sum_of(chain, token, vector)) * sum_bytes()), 16));
        for (std::size_t half = parts.size() / 2; half > 0; half /= 2)
          for (std::size_t i = 0; i < half; ++i) parts[i] = ir_.CreateFAdd(parts[i], parts[i + half]);
        v_.store(parts[0], v_.at(to, std::int64_t{4} * token * g_.block_out + vector * sum_bytes()), 16);
      }
  });
}

}  // namespace

void emit_thin_column_pass(VectorIr& ir, std::string_view name, const Geometry& geometry,
                           const Tables& tables) {
  ThinColumnPass(ir, geometry, tables).emit(name, "");
}

}  // namespace sparsekiln::cpu
