#include <utility>

#include <llvm/IR/Intrinsics.h>

#include "compiler/cpu/gathering_pass.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::int64_t kPrefetchAhead = 4096;  ///< bytes of the weight, where a chunk is one block
constexpr std::int64_t kLine = 64;
constexpr std::int64_t kStepsAhead = 2;  ///< whose lines of x are prefetched

/// One pass under construction. Names: step = one block, group = the batch rows of one register tile, which
/// has all outputs of a block. Every group goes over a chunk of the weight while it is in L1, with sums in
/// registers through the chunk and in L1 between chunks.
class OutputPass final : public GatheringPass {
 public:
  using GatheringPass::GatheringPass;

 private:
  struct Group {
    Value* number;
    Value* batch_row;  ///< its first one
    std::int32_t batch_rows;
  };
  /// The two factors of a product.
  struct Operands {
    Value* w;  ///< one of weights_
    Value* panel;
  };

  void accumulate(const ItemSteps& item) const override;
  void gather_sums(const BatchTile& batch_tile, Value* sums, Value* first, Value* gathered) const override;
  void for_each_group(const BatchTile& batch_tile, const std::function<void(const Group&)>& body) const;
  [[nodiscard]] Values block_product(const Operands& operands, Value* step, const Group& group,
                                     Values sums) const;
  void multiply(Value* w, Value* x, Values& sums) const;
  [[nodiscard]] Values load_sums(Value* address, std::int32_t batch_rows) const;
  void store_sums(Value* address, const Values& values) const;

  [[nodiscard]] std::int32_t vectors() const { return g_.tile.vectors; }
  [[nodiscard]] std::int64_t vector_bytes() const { return std::int64_t{4} * lanes_; }
  [[nodiscard]] std::int64_t batch_row_sums_bytes() const { return std::int64_t{4} * g_.block_out; }
};

void OutputPass::accumulate(const ItemSteps& item) const {
  clear(item.sums);
  for_each_chunk(item.first, item.count, [&](Value* begin, Value* end, Value*) {
    for_each_weight(item.sums, [&](Value* w, Value* sums) {
      const Operands operands{w, item.batch_tile.panel};
      for_each_group(item.batch_tile, [&](const Group& group) {
        Value* address = v_.settled(v_.at(sums, v_.times(group.batch_row, batch_row_sums_bytes())));
        store_sums(address, v_.loop("step", begin, end, load_sums(address, group.batch_rows),
                                    [&](Value* step, const Values& now) {
                                      return block_product(operands, step, group, now);
                                    }));
      });
    });
  });
}

/// Calls `body` for the groups that have a batch row: one loop for each run of equally large ones.
void OutputPass::for_each_group(const BatchTile& batch_tile,
                                const std::function<void(const Group&)>& body) const {
  const auto& batch_rows = g_.tile.batch_rows;
  Value* present = present_batch_rows(batch_tile);
  std::int64_t base = 0;
  for (std::size_t begin = 0; begin < batch_rows.size();) {
    std::size_t end = begin;
    while (end < batch_rows.size() && batch_rows[end] == batch_rows[begin]) ++end;
    const std::int32_t each = batch_rows[begin];
    const auto run = static_cast<std::int64_t>(end - begin);
    Value* needed = ir_.CreateSDiv(v_.plus(present, v_.constant(each - 1 - base)), v_.constant(each));
    Value* groups = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, needed, v_.constant(run));
    v_.loop("group", v_.constant(0), groups, [&](Value* group) {
      body({v_.plus(group, v_.constant(static_cast<std::int64_t>(begin))),
            v_.plus(v_.constant(base), v_.times(group, each)), each});
    });
    base += run * each;
    begin = end;
  }
}

OutputPass::Values OutputPass::block_product(const Operands& operands, Value* step, const Group& group,
                                             Values sums) const {
  const std::int64_t line_words = g_.line_words();
  const std::int64_t x_batch_row = 4 * line_words;
  const std::int64_t x_line = x_batch_row * g_.tile_n;
  const std::int64_t lines = g_.block_words / line_words;
  const std::int64_t w_line = batch_row_sums_bytes() * line_words;
  const auto x_of = [&](Value* column) {  // maybe of a step that is not there
    Value* block = v_.beyond(operands.panel, v_.times(column, x_line * lines));
    return v_.settled(v_.beyond(block, v_.times(group.batch_row, x_batch_row)));
  };
  Value* column = v_.entry(tables_.columns, step, "column");
  Value* next_column = v_.entry(tables_.columns, v_.plus(step, v_.constant(kStepsAhead)), "next_column");
  Value* w = v_.at(operands.w, v_.times(step, g_.block_bytes()), "w.block");

  // The groups of a chunk share the prefetching of the next one's weight, and every turn its share of that.
  const std::int64_t turns = static_cast<std::int64_t>(g_.tile.batch_rows.size()) * lines;
  const std::int64_t w_lines = (g_.block_bytes() + kLine * turns - 1) / (kLine * turns);
  const std::int64_t w_ahead_bytes = g_.chunk == 1 ? kPrefetchAhead : g_.chunk * g_.block_bytes();
  Value* share = v_.plus(v_.times(group.number, lines * w_lines * kLine), v_.constant(w_ahead_bytes));

  const std::size_t sum_count = sums.size();
  Values carried = std::move(sums);
  carried.push_back(v_.settled(w));
  carried.push_back(x_of(column));
  carried.push_back(x_of(next_column));
  carried.push_back(v_.settled(v_.beyond(w, share)));
  const auto turn = [&](Value*, const Values& now) {
    Values acc(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(sum_count));
    Value* w_turn = now[sum_count];
    Value* x_turn = now[sum_count + 1];
    Value* x_ahead = now[sum_count + 2];
    Value* w_ahead = now[sum_count + 3];
    for (std::int64_t at = 0; at < group.batch_rows * x_batch_row; at += kLine)
      v_.prefetch(v_.beyond(x_ahead, at));
    for (std::int64_t line = 0; line < w_lines; ++line) v_.prefetch(v_.beyond(w_ahead, line * kLine));
    for (std::int64_t k = 0; k < line_words; ++k) {
      multiply(v_.at(w_turn, k * batch_row_sums_bytes()), v_.at(x_turn, 4 * k), acc);
      acc = v_.pinned(acc);
    }
    acc.push_back(v_.at(w_turn, w_line));
    acc.push_back(v_.at(x_turn, x_line));
    acc.push_back(v_.beyond(x_ahead, x_line));
    acc.push_back(v_.beyond(w_ahead, w_lines * kLine));
    return acc;
  };
  Values results = lines == 1 ? turn(v_.constant(0), carried)
                              : v_.loop("k", v_.constant(0), v_.constant(lines), std::move(carried), turn);
  results.resize(sum_count);
  return results;
}

/// One word of k: sums += the outputs' words of the weight, held in registers, times that word of each batch
/// row.
void OutputPass::multiply(Value* w, Value* x, Values& sums) const {
  Values weight;
  for (std::int32_t vector = 0; vector < vectors(); ++vector)
    weight.push_back(v_.load(v_.floats(lanes_), v_.at(w, vector_bytes() * vector), 16));
  for (std::size_t i = 0; i < sums.size();) {
    const auto batch_row = static_cast<std::int64_t>(i / weight.size());
    Value* word = v_.load(ir_.getFloatTy(), v_.at(x, std::int64_t{4} * g_.line_words() * batch_row), 4);
    Value* broadcast = v_.splat(word, lanes_);
    for (Value* outputs : weight) {
      sums[i] = v_.multiply_add(broadcast, outputs, sums[i]);
      ++i;
    }
  }
}

/// A batch row's sums are a whole number of vectors, and batch rows follow each other.
OutputPass::Values OutputPass::load_sums(Value* address, std::int32_t batch_rows) const {
  Values values;
  for (std::int64_t i = 0; i < std::int64_t{batch_rows} * vectors(); ++i)
    values.push_back(v_.load(v_.floats(lanes_), v_.at(address, i * vector_bytes()), 16));
  return values;
}

void OutputPass::store_sums(Value* address, const Values& values) const {
  for (std::size_t i = 0; i < values.size(); ++i)
    v_.store(values[i], v_.at(address, static_cast<std::int64_t>(i) * vector_bytes()), 16);
}

void OutputPass::gather_sums(const BatchTile& batch_tile, Value* sums, Value* first, Value* gathered) const {
  v_.loop("batch_row", v_.constant(0), present_batch_rows(batch_tile), [&](Value* batch_row) {
    Value* from = v_.settled(v_.at(sums, v_.times(batch_row, batch_row_sums_bytes())));
    Value* to = v_.plus(v_.times(batch_row, gathered_outputs()), first);
    store_sums(v_.settled(v_.at(gathered, v_.times(to, 4))), load_sums(from, 1));
  });
}

}  // namespace

void emit_output_pass(VectorIr& ir, std::string_view name, const Geometry& geometry, LayoutIr& layout,
                      std::string_view pack) {
  OutputPass(ir, geometry, layout).emit(name, pack);
}

}  // namespace sparsekiln::cpu
