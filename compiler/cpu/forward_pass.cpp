#include <algorithm>
#include <cstddef>

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "compiler/cpu/emit.h"
#include "compiler/cpu/packed_weight.h"
#include "compiler/cpu/passes.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::int32_t kUnroll = 8;  ///< words of k in one turn of the inner loop
constexpr std::int64_t kPrefetchAhead =
    4096;  ///< bytes; hardware prefetchers stop at a page, blocks lie across
constexpr std::int64_t kLine = 64;

/// One pass under construction. Names: item = a worker's stretch of steps, step = one block, tile = `outputs`
/// of a block's rows in registers, group = `vectors` vectors of tokens.
class ForwardPass {
 public:
  ForwardPass(VectorIr& v, const Geometry& geometry, const Tables& tables)
      : v_(v), ir_(v.ir), g_(geometry), tables_(tables), lanes_(v.level.lanes) {}

  void emit(std::string_view name);

 private:
  using Value = llvm::Value;
  using Values = VectorIr::Values;

  struct Block {
    Value* w;       ///< the block's first word
    Value* x;       ///< its columns' words in the panel
    Value* next_x;  ///< those of the step after, to prefetch; null: none
  };

  void item(Value* number);
  void accumulate(Value* sums, Value* first, Value* steps);
  void for_each_tile(const std::function<void(Value* output, std::int32_t outputs, Value* group)>& body);
  Block block(Value* step);
  Values block_product(const Block& block, Value* output, std::int32_t outputs, Value* group, Values sums);
  Value* sums_address(Value* sums, Value* output, Value* group);
  Values load_sums(Value* address, std::int32_t outputs);
  void store_sums(Value* address, const Values& values, std::int32_t outputs);
  void combine(Value* parts, Value* first_partial);
  void store_outputs(Value* output_block);
  [[nodiscard]] std::int32_t group_tokens() const { return g_.tile.vectors * lanes_; }

  VectorIr& v_;
  llvm::IRBuilder<>& ir_;
  const Geometry& g_;
  const Tables& tables_;
  std::int32_t lanes_;
  Value* w_ = nullptr;
  Value* y_ = nullptr;
  Value* y_row_bytes_ = nullptr;
  Value* n_ = nullptr;
  TileWorkspace workspace_{};
  Value* own_sums_ = nullptr;    ///< [block_out][tile_n] on the stack
  Value* transposed_ = nullptr;  ///< [tile_n][block_out] on the stack
};

void ForwardPass::emit(std::string_view name) {
  v_.begin_pass(name);
  const auto stack = [&](const char* label) {
    auto* memory = ir_.CreateAlloca(
        llvm::ArrayType::get(ir_.getInt8Ty(), static_cast<std::uint64_t>(g_.sums_bytes)), nullptr, label);
    memory->setAlignment(llvm::Align(64));
    return memory;
  };
  own_sums_ = stack("sums");
  transposed_ = stack("transposed");
  w_ = v_.argument(ir_.getPtrTy(), offsetof(Call, w), "w");
  y_ = v_.argument(ir_.getPtrTy(), offsetof(Call, y), "y");
  n_ = v_.argument(ir_.getInt64Ty(), offsetof(Call, n), "n");
  y_row_bytes_ = v_.times(v_.argument(ir_.getInt64Ty(), offsetof(Call, y_stride), "y_stride"),
                          static_cast<std::int64_t>(size_of(g_.out_dtype)));
  workspace_ = locate_workspace(v_, g_);
  Value* begin = v_.entry(tables_.worker_begin, v_.worker, "items.begin");
  Value* end = v_.entry(tables_.worker_begin, v_.plus(v_.worker, v_.constant(1)), "items.end");
  v_.loop("item", begin, end, [&](Value* number) { item(number); });
  v_.end_pass();
}

void ForwardPass::item(Value* number) {
  const auto field = [&](std::int32_t index, const char* label) {
    return v_.entry(tables_.items, v_.plus(v_.times(number, kItemFields), v_.constant(index)), label);
  };
  Value* output = field(0, "output");
  Value* first = field(1, "first_step");
  Value* steps = field(2, "steps");
  if (g_.counters == 0) {
    accumulate(own_sums_, first, steps);
    store_outputs(output);
    return;
  }
  Value* part = field(3, "part");
  Value* parts = field(4, "parts");
  Value* partial = field(5, "partial");
  Value* counter = field(6, "counter");
  Value* whole = ir_.CreateICmpEQ(parts, v_.constant(1), "whole");
  Value* slot = v_.at(workspace_.partials, v_.times(v_.plus(partial, part), g_.sums_bytes));
  Value* sums = ir_.CreateSelect(whole, own_sums_, slot, "sums_of_part");
  accumulate(sums, first, steps);
  v_.branch("whole.store", whole, [&] { store_outputs(output); });
  v_.branch("part.arrive", ir_.CreateNot(whole), [&] {
    Value* address = v_.at(workspace_.counters, v_.times(counter, 4));
    Value* arrived = ir_.CreateAtomicRMW(llvm::AtomicRMWInst::Add, address, ir_.getInt32(1), llvm::Align(4),
                                         llvm::AtomicOrdering::AcquireRelease);
    Value* last =
        ir_.CreateICmpEQ(ir_.CreateZExt(ir_.CreateAdd(arrived, ir_.getInt32(1)), ir_.getInt64Ty()), parts);
    v_.branch("last.combine", last, [&] {
      v_.store(ir_.getInt32(0), address, 4);
      combine(parts, v_.at(workspace_.partials, v_.times(partial, g_.sums_bytes)));
      store_outputs(output);
    });
  });
}

void ForwardPass::combine(Value* parts, Value* first_partial) {
  const std::int64_t vector_bytes = std::int64_t{4} * lanes_;
  v_.loop("combine", v_.constant(0), v_.constant(g_.sums_bytes / vector_bytes), [&](Value* i) {
    Value* bytes = v_.times(i, vector_bytes);
    auto* type = v_.floats(lanes_);
    Value* sum = v_.load(type, v_.at(first_partial, bytes), 16);
    sum = v_.loop("part", v_.constant(1), parts, {sum}, [&](Value* part, const Values& sums) -> Values {
      Value* from = v_.at(v_.at(first_partial, v_.times(part, g_.sums_bytes)), bytes);
      return {ir_.CreateFAdd(sums[0], v_.load(type, from, 16))};
    })[0];
    v_.store(sum, v_.at(own_sums_, bytes), 16);
  });
}

/// Block by block: the weight is read once from end to end, and the sums of the row stay in L1 between
/// blocks. Sums kept in registers through the row would save their loads and stores, but the weight would be
/// read in strips; even for 8×8 blocks that takes twice as long.
void ForwardPass::accumulate(Value* sums, Value* first, Value* steps) {
  auto* type = v_.floats(lanes_);
  v_.loop("clear", v_.constant(0), v_.constant(g_.sums_bytes / (4 * lanes_)), [&](Value* i) {
    v_.store(llvm::Constant::getNullValue(type), v_.at(sums, v_.times(i, std::int64_t{4} * lanes_)), 16);
  });
  v_.loop("step", first, v_.plus(first, steps), [&](Value* step) {
    const Block current = block(step);
    for_each_tile([&](Value* output, std::int32_t outputs, Value* group) {
      Value* address = sums_address(sums, output, group);
      store_sums(address, block_product(current, output, outputs, group, load_sums(address, outputs)),
                 outputs);
    });
  });
}

/// Calls `body` for every register tile: one loop for each run of equal tiles, and within it one over the
/// groups.
void ForwardPass::for_each_tile(const std::function<void(Value*, std::int32_t, Value*)>& body) {
  const auto& outputs = g_.tile.outputs;
  std::int64_t base = 0;
  for (std::size_t begin = 0; begin < outputs.size();) {
    std::size_t end = begin;
    while (end < outputs.size() && outputs[end] == outputs[begin]) ++end;
    v_.loop("tile", v_.constant(0), v_.constant(static_cast<std::int64_t>(end - begin)), [&](Value* tile) {
      Value* output = v_.plus(v_.constant(base), v_.times(tile, outputs[begin]));
      v_.loop("group", v_.constant(0), v_.constant(g_.tile_n / group_tokens()),
              [&](Value* group) { body(output, outputs[begin], group); });
    });
    base += static_cast<std::int64_t>(end - begin) * outputs[begin];
    begin = end;
  }
}

ForwardPass::Block ForwardPass::block(Value* step) {
  const std::int64_t panel_block = std::int64_t{4} * g_.block_words * g_.tile_n;
  Value* column = v_.entry(tables_.columns, step, "column");
  Value* next = v_.entry(tables_.columns, v_.plus(step, v_.constant(1)), "next_column");
  return {v_.at(w_, v_.times(step, g_.block_bytes()), "w.block"),
          v_.at(workspace_.panel, v_.times(column, panel_block), "x.block"),
          v_.at(workspace_.panel, v_.times(next, panel_block), "x.next")};
}

ForwardPass::Values ForwardPass::block_product(const Block& block, Value* output, std::int32_t outputs,
                                               Value* group, Values sums) {
  const std::int64_t w_row = std::int64_t{4} * g_.block_words;
  const WeightStrides w_strides = weight_strides(g_.packed, outputs, g_.block_words);
  const std::int64_t x_row = std::int64_t{4} * g_.tile_n;
  const std::int32_t unroll = std::min(kUnroll, g_.block_words);
  const std::int32_t turns = g_.block_words / unroll;
  const std::int64_t groups = g_.tile_n / group_tokens();
  Value* w = v_.at(block.w, v_.times(output, w_row), "w.tile");
  Value* x = v_.at(block.x, v_.times(group, std::int64_t{4} * group_tokens()), "x.tile");

  // Every turn prefetches its share: of the weight, of what the tile covers; of x, of the next step's panel.
  const auto lines = [](std::int64_t bytes, std::int64_t shares) {
    return (bytes + kLine * shares - 1) / (kLine * shares);
  };
  const std::int64_t w_lines = lines(w_row * outputs, groups * turns);
  const auto tiles = static_cast<std::int64_t>(g_.tile.outputs.size());
  const std::int64_t x_lines = lines(x_row * g_.block_words, groups * turns * tiles);
  Value* turn_base = v_.times(group, turns);
  Value* x_turn_base =
      v_.plus(turn_base, v_.times(ir_.CreateSDiv(output, v_.constant(outputs)), groups * turns));

  const bool floats = g_.dtype == DType::f32;
  auto* sum_type = v_.floats(lanes_);
  auto* word_type = floats ? static_cast<llvm::Type*>(ir_.getFloatTy()) : ir_.getInt32Ty();
  auto* vector_type = llvm::FixedVectorType::get(word_type, static_cast<unsigned>(lanes_));
  const auto half = [&](Value* words, bool upper) {  // of each word, as float
    Value* bits = upper ? ir_.CreateAnd(words, v_.splat(ir_.getInt32(0xffff0000), lanes_))
                        : ir_.CreateShl(words, v_.splat(ir_.getInt32(16), lanes_));
    return ir_.CreateBitCast(bits, sum_type);
  };
  // Addresses are carried, so that every load of a turn is one register and a constant away.
  const std::size_t sum_count = sums.size();
  Values carried = std::move(sums);
  carried.push_back(w);
  carried.push_back(x);
  carried.push_back(v_.beyond(w, v_.times(turn_base, w_lines * kLine)));
  carried.push_back(v_.beyond(block.next_x, v_.times(x_turn_base, x_lines * kLine)));
  const auto turn = [&](Value*, const Values& now) {
    Values acc(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(sum_count));
    Value* w_turn = now[sum_count];
    Value* x_turn = now[sum_count + 1];
    Value* w_ahead = now[sum_count + 2];
    Value* x_ahead = now[sum_count + 3];
    for (std::int64_t line = 0; line < w_lines; ++line)
      v_.prefetch(v_.beyond(w_ahead, kPrefetchAhead + line * kLine));
    for (std::int64_t line = 0; line < x_lines; ++line) v_.prefetch(v_.beyond(x_ahead, line * kLine));
    for (std::int32_t k = 0; k < unroll; ++k) {
      Values xs;
      for (std::int32_t vector = 0; vector < g_.tile.vectors; ++vector)
        xs.push_back(v_.load(vector_type, v_.at(x_turn, k * x_row + std::int64_t{4} * lanes_ * vector), 16));
      for (std::int32_t out = 0; out < outputs; ++out) {
        Value* weight = v_.splat(
            v_.load(word_type, v_.at(w_turn, 4 * (out * w_strides.output + k * w_strides.k)), 4), lanes_);
        for (std::int32_t vector = 0; vector < g_.tile.vectors; ++vector) {
          Value*& sum = acc[static_cast<std::size_t>(out * g_.tile.vectors + vector)];
          Value* xv = xs[static_cast<std::size_t>(vector)];
          if (floats) {
            sum = v_.multiply_add(xv, weight, sum);
          } else if (v_.level.dot_bf16) {
            auto* pairs = llvm::FixedVectorType::get(ir_.getBFloatTy(), static_cast<unsigned>(2 * lanes_));
            sum = ir_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {},
                                      {sum, ir_.CreateBitCast(xv, pairs), ir_.CreateBitCast(weight, pairs)});
          } else {
            sum = v_.multiply_add(half(xv, false), half(weight, false), sum);
            sum = v_.multiply_add(half(xv, true), half(weight, true), sum);
          }
        }
      }
    }
    acc.push_back(v_.at(w_turn, 4 * unroll * w_strides.k));
    acc.push_back(v_.at(x_turn, x_row * unroll));
    acc.push_back(v_.beyond(w_ahead, w_lines * kLine));
    acc.push_back(v_.beyond(x_ahead, x_lines * kLine));
    return acc;
  };
  Values results = v_.loop("k", v_.constant(0), v_.constant(turns), std::move(carried), turn);
  results.resize(sum_count);
  return results;
}

ForwardPass::Value* ForwardPass::sums_address(Value* sums, Value* output, Value* group) {
  return v_.at(sums, v_.times(v_.plus(v_.times(output, g_.tile_n), v_.times(group, group_tokens())), 4),
               "sums.tile");
}

ForwardPass::Values ForwardPass::load_sums(Value* address, std::int32_t outputs) {
  Values values;
  for (std::int32_t out = 0; out < outputs; ++out)
    for (std::int32_t vector = 0; vector < g_.tile.vectors; ++vector)
      values.push_back(v_.load(v_.floats(lanes_),
                               v_.at(address, std::int64_t{4} * (out * g_.tile_n + vector * lanes_)), 16));
  return values;
}

void ForwardPass::store_sums(Value* address, const Values& values, std::int32_t outputs) {
  std::size_t next = 0;
  for (std::int32_t out = 0; out < outputs; ++out)
    for (std::int32_t vector = 0; vector < g_.tile.vectors; ++vector)
      v_.store(values[next++], v_.at(address, std::int64_t{4} * (out * g_.tile_n + vector * lanes_)), 16);
}

/// Turns the row's sums batch-major, converts them and writes the tokens that exist.
void ForwardPass::store_outputs(Value* output_block) {
  const std::int32_t side = std::min(8, lanes_);
  const std::int32_t squares = g_.block_out / side;
  auto* type = v_.floats(side);
  v_.loop("turn", v_.constant(0), v_.constant(std::int64_t{squares} * (g_.tile_n / side)), [&](Value* i) {
    Value* output = v_.times(ir_.CreateSRem(i, v_.constant(squares)), side);
    Value* token = v_.times(ir_.CreateSDiv(i, v_.constant(squares)), side);
    Value* from = v_.at(own_sums_, v_.times(v_.plus(v_.times(output, g_.tile_n), token), 4));
    Value* to = v_.at(transposed_, v_.times(v_.plus(v_.times(token, g_.block_out), output), 4));
    Values rows;
    for (std::int32_t r = 0; r < side; ++r)
      rows.push_back(v_.load(type, v_.at(from, std::int64_t{4} * r * g_.tile_n), 16));
    rows = v_.transpose(rows);
    for (std::int32_t r = 0; r < side; ++r)
      v_.store(rows[static_cast<std::size_t>(r)], v_.at(to, std::int64_t{4} * r * g_.block_out), 16);
  });
  Value* first_token = v_.times(v_.batch_tile, g_.tile_n);
  Value* tokens = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, ir_.CreateSub(n_, first_token),
                                            v_.constant(g_.tile_n));
  const auto out_bytes = static_cast<std::int64_t>(size_of(g_.out_dtype));
  Value* column = v_.at(y_, v_.times(output_block, g_.block_out * out_bytes));
  v_.loop("token", v_.constant(0), tokens, [&](Value* token) {
    Value* from = v_.at(transposed_, v_.times(token, std::int64_t{4} * g_.block_out));
    Value* to = v_.at(column, ir_.CreateMul(v_.plus(first_token, token), y_row_bytes_));
    for (std::int32_t square = 0; square < squares; ++square) {
      Value* values = v_.load(type, v_.at(from, std::int64_t{4} * side * square), 16);
      if (g_.out_dtype == DType::bf16) values = v_.to_bf16(values);
      v_.store(values, v_.at(to, side * out_bytes * square),
               static_cast<unsigned>(std::min<std::int64_t>(16, side * out_bytes)));
    }
  });
}

}  // namespace

void emit_forward_pass(VectorIr& ir, std::string_view name, const Geometry& geometry, const Tables& tables) {
  ForwardPass(ir, geometry, tables).emit(name);
}

}  // namespace sparsekiln::cpu
