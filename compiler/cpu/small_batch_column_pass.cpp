#include <algorithm>
#include <utility>

#include "compiler/cpu/small_batch_pass.h"

namespace sparsekiln::cpu {
namespace {

/// Bytes of blocks between the one that is read and the one that is prefetched: blocks of a column of W lie
/// apart, where no hardware prefetcher finds them.
constexpr std::int64_t kPrefetchAhead = 4096;
/// Chains of each output, where neighbouring steps are of different outputs: steps that are in flight at the
/// same time are chains, too, but as many as keep the multiply-adders busy do not fit a processor's window of
/// instructions.
constexpr std::int32_t kGroupChains = 2;
constexpr std::int32_t kUnroll = 8;  ///< words of k in one turn of the inner loop: blocks have a multiple

/// Lanes are outputs; a register tile has all batch rows, as many vectors of outputs as make kChains sums
/// with them and, where a block has fewer, several chains of k for each.
class SmallBatchColumnPass final : public SmallBatchPass {
 public:
  using SmallBatchPass::SmallBatchPass;

 private:
  void begin() override;
  [[nodiscard]] std::int32_t tiles() const override { return g_.block_out / tile_outputs(); }
  [[nodiscard]] std::int64_t tile_weight_bytes() const override { return g_.word_bytes * tile_outputs(); }
  [[nodiscard]] std::int32_t sum_lanes() const override { return std::min(lanes_, g_.block_out); }
  [[nodiscard]] Block locate(const Operands& operands, Value* step) const override;
  [[nodiscard]] Values multiply_tile(const Block& block, Values sums) const override;
  void multiply_turn(const Block& turn, Values& sums) const;
  void accumulate_group(const BatchTile& batch_tile, Value* first, Value* last) const override;
  void group_step(Value* step, const Block& block) const;
  void reduce(Value* sums) const override;
  [[nodiscard]] Value* added(Values parts) const;
  [[nodiscard]] Value* block_address(Value* w, Value* step) const;
  [[nodiscard]] Block locate(const Operands& operands, Value* step, Value* column) const;
  [[nodiscard]] Values widened_rows() const;
  void widen(const Values& xs, const Values& rows) const;

  [[nodiscard]] std::int32_t vectors() const {
    return std::min(kChains / g_.tile_n, g_.block_out / sum_lanes());
  }
  [[nodiscard]] std::int32_t chains() const {
    const std::int32_t most = kChains / (g_.tile_n * vectors());
    return grouped() ? std::min(kGroupChains, most) : most;
  }
  [[nodiscard]] std::int32_t tile_outputs() const { return vectors() * sum_lanes(); }
  /// The products of one word of k with all outputs.
  [[nodiscard]] std::int64_t column_bytes() const { return g_.word_bytes * g_.block_out; }
  [[nodiscard]] bool widens_x() const { return g_.widens() && !g_.packs_x; }
  [[nodiscard]] std::size_t sum_of(std::int32_t chain, std::int32_t batch_row, std::int32_t vector) const {
    return static_cast<std::size_t>((chain * g_.tile_n + batch_row) * vectors() + vector);
  }

  Value* widened_ = nullptr;  ///< x of one block, [tile_n][block_words] float32; null: not needed
};

void SmallBatchColumnPass::begin() {
  SmallBatchPass::begin();
  if (widens_x()) widened_ = stack(std::int64_t{4} * g_.block_words * g_.tile_n, "widened");
}

SmallBatchPass::Value* SmallBatchColumnPass::block_address(Value* w, Value* step) const {
  return v_.settled(v_.beyond(w, v_.times(block_of(step), g_.block_bytes())));
}

SmallBatchPass::Block SmallBatchColumnPass::locate(const Operands& operands, Value* step) const {
  Block block = locate(operands, step, v_.entry(tables_.columns, step, "column"));
  if (!widens_x()) return block;
  const Values rows = widened_rows();
  widen(block.xs, rows);
  block.xs = rows;
  return block;
}

SmallBatchPass::Block SmallBatchColumnPass::locate(const Operands& operands, Value* step,
                                                   Value* column) const {
  const std::int64_t steps_ahead =
      std::clamp<std::int64_t>(kPrefetchAhead / g_.block_bytes(), 1, kColumnsBehind);
  Block block{block_address(operands.w, step),
              block_address(operands.w, v_.plus(step, v_.constant(steps_ahead))),
              {}};
  Value* x = v_.times(column, x_word_bytes() * g_.block_words);
  for (Value* batch_row : operands.batch_rows) block.xs.push_back(v_.settled(v_.at(batch_row, x)));
  return block;
}

SmallBatchPass::Values SmallBatchColumnPass::widened_rows() const {
  Values rows;
  for (std::int32_t batch_row = 0; batch_row < g_.tile_n; ++batch_row)
    rows.push_back(v_.settled(v_.at(widened_, std::int64_t{4} * g_.block_words * batch_row)));
  return rows;
}

/// Rows of x that are broadcast word by word are widened by vectors before.
void SmallBatchColumnPass::widen(const Values& xs, const Values& rows) const {
  const std::int32_t lanes = std::min(8, lanes_);
  const unsigned align = g_.aligned(g_.dtype, std::int64_t{g_.word_bytes} * lanes);
  for (std::size_t batch_row = 0; batch_row < xs.size(); ++batch_row)
    for (std::int64_t k = 0; k < g_.block_words; k += lanes)
      v_.store(v_.load_floats(g_.dtype, v_.at(xs[batch_row], g_.word_bytes * k), lanes, align),
               v_.at(rows[batch_row], 4 * k), 16);
}

SmallBatchPass::Values SmallBatchColumnPass::multiply_tile(const Block& block, Values sums) const {
  const std::size_t count = sums.size();
  Values carried = std::move(sums);
  carried.push_back(block.w);
  carried.push_back(block.ahead);
  carried.insert(carried.end(), block.xs.begin(), block.xs.end());
  const auto turn = [&](Value*, const Values& now) {
    const auto after_sums = now.begin() + static_cast<std::ptrdiff_t>(count);
    Values next(now.begin(), after_sums);
    const Block at{after_sums[0], after_sums[1], Values(after_sums + 2, now.end()), block.block_scale};
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

void SmallBatchColumnPass::multiply_turn(const Block& turn, Values& sums) const {
  const std::int64_t vector_bytes = g_.word_bytes * sum_lanes();
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
      weight.push_back(scaled_floats(
          v_.load_floats(g_.dtype, v_.at(turn.w, k * column_bytes() + vector * vector_bytes), sum_lanes(),
                         static_cast<unsigned>(std::min<std::int64_t>(16, vector_bytes))),
          turn.block_scale));
    for (std::int32_t batch_row = 0; batch_row < g_.tile_n; ++batch_row) {
      Value* word = v_.load(ir_.getFloatTy(), v_.at(turn.xs[static_cast<std::size_t>(batch_row)], 4 * k), 4);
      Value* broadcast = v_.splat(word, sum_lanes());
      for (std::int32_t vector = 0; vector < vectors(); ++vector) {
        Value*& sum = sums[sum_of(k % chains(), batch_row, vector)];
        sum = v_.multiply_add(broadcast, weight[static_cast<std::size_t>(vector)], sum);
      }
    }
    sums = v_.pinned(sums);
  }
}

/// Neighbouring steps are often of the same x.
void SmallBatchColumnPass::accumulate_group(const BatchTile& batch_tile, Value* first, Value* last) const {
  const Operands operands{weights_.front(), x_rows(batch_tile)};
  const Values rows = widens_x() ? widened_rows() : Values{};
  (void)v_.loop("step", first, last, {v_.constant(-1)}, [&](Value* step, const Values& before) -> Values {
    Value* column = v_.entry(tables_.columns, step, "column");
    Block block = locate(operands, step, column);
    if (widens_x()) {
      v_.branch("other_column", ir_.CreateICmpNE(column, before[0]), [&] { widen(block.xs, rows); });
      block.xs = rows;
    }
    if (!g_.block_scales) {
      group_step(step, block);
      return {column};
    }
    block.block_scale = block_scale_of(step);
    v_.branch("used", is_used(block.block_scale), [&] { group_step(step, block); });
    return {column};
  });
}

/// The first chain of each output goes on from its sum, others begin at 0.
void SmallBatchColumnPass::group_step(Value* step, const Block& block) const {
  Value* sums = group_sums_of(v_.entry(tables_.slots, step, "slot"));
  const auto one_tile = [&](Value* w, Value* ahead, Value* to) {
    const auto address = [&](std::size_t i) {
      const auto batch_row = static_cast<std::int64_t>(i) / vectors();
      const auto vector = static_cast<std::int64_t>(i) % vectors();
      return v_.at(to, std::int64_t{4} * g_.block_out * batch_row + vector * sum_bytes());
    };
    const auto count = static_cast<std::size_t>(g_.tile_n * vectors());
    Values values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(v_.load(v_.floats(sum_lanes()), address(i), 16));
    values.resize(count * static_cast<std::size_t>(chains()),
                  llvm::Constant::getNullValue(v_.floats(sum_lanes())));
    values = multiply_tile({w, ahead, block.xs, block.block_scale}, std::move(values));
    for (std::size_t i = 0; i < count; ++i) {
      Values parts;
      for (std::size_t at = i; at < values.size(); at += count) parts.push_back(values[at]);
      v_.store(added(std::move(parts)), address(i), 16);
    }
  };
  if (tiles() == 1) return one_tile(block.w, block.ahead, sums);
  v_.loop("tile", v_.constant(0), v_.constant(tiles()), [&](Value* tile) {
    Value* weight = v_.times(tile, tile_weight_bytes());
    one_tile(v_.at(block.w, weight), v_.beyond(block.ahead, weight),
             v_.at(sums, v_.times(tile, std::int64_t{4} * tile_outputs())));
  });
}

/// The upper half of the chains to the lower one, until one is left.
SmallBatchPass::Value* SmallBatchColumnPass::added(Values parts) const {
  for (std::size_t half = parts.size() / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) parts[i] = ir_.CreateFAdd(parts[i], parts[i + half]);
  return parts[0];
}

/// The chains of each output become one sum.
void SmallBatchColumnPass::reduce(Value* sums) const {
  auto* type = v_.floats(sum_lanes());
  v_.loop("reduce", v_.constant(0), v_.constant(tiles()), [&](Value* tile) {
    Value* from = v_.at(vectors_, v_.times(tile, kChains * sum_bytes()));
    Value* to = v_.at(sums, v_.times(tile, std::int64_t{4} * tile_outputs()));
    for (std::int32_t batch_row = 0; batch_row < g_.tile_n; ++batch_row)
      for (std::int32_t vector = 0; vector < vectors(); ++vector) {
        Values parts;
        for (std::int32_t chain = 0; chain < chains(); ++chain)
          parts.push_back(v_.load(
              type, v_.at(from, static_cast<std::int64_t>(sum_of(chain, batch_row, vector)) * sum_bytes()),
              16));
        v_.store(added(std::move(parts)),
                 v_.at(to, std::int64_t{4} * batch_row * g_.block_out + vector * sum_bytes()), 16);
      }
  });
}

}  // namespace

void emit_small_batch_column_pass(VectorIr& ir, std::string_view name, const Geometry& geometry,
                                  LayoutIr& layout, std::string_view pack) {
  SmallBatchColumnPass(ir, geometry, layout).emit(name, pack);
}

}  // namespace sparsekiln::cpu
