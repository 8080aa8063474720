#include <algorithm>
#include <cstddef>

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "compiler/cpu/emit.h"
#include "compiler/cpu/row_pass.h"

namespace sparsekiln::cpu {
namespace {

/// Sums in registers: eight keep two 4-cycle multiply-adders busy.
constexpr std::int32_t kChains = 8;
/// Bytes of the weight; far enough for memory, near enough for L1.
constexpr std::int64_t kPrefetchAhead = 2048;
constexpr std::int64_t kLine = 64;

/// Block by block, so that the weight is one stream: of each block, `outputs` rows at a time against the x of
/// all tokens. Between blocks the sums, a vector for each output and token, lie in L1.
class ThinPass final : public RowPass {
 public:
  using RowPass::RowPass;

 private:
  struct Block {
    Value* w;
    Values xs;  ///< of its columns, by token
  };

  void begin() override {
    x_ = v_.argument(ir_.getPtrTy(), offsetof(Call, x), "x");
    x_row_bytes_ = v_.times(v_.argument(ir_.getInt64Ty(), offsetof(Call, x_stride), "x_stride"),
                            static_cast<std::int64_t>(size_of(g_.dtype)));
    vectors_ = stack(std::int64_t{4} * vector_words() * g_.block_out * g_.tile_n, "vectors");
  }
  void accumulate(Value* sums, Value* first, Value* steps) override;
  void store_outputs(Value* output_block) override;
  Values token_rows();
  Block locate(const Values& tokens, Value* step);
  [[nodiscard]] Values multiply_tile(Value* w, const Values& xs, Values sums);
  [[nodiscard]] Values load_sums(Value* from);
  void store_sums(const Values& sums, Value* to);
  void reduce(Value* sums);
  [[nodiscard]] Value* multiply_words(Value* w, Value* x, Value* sum);

  [[nodiscard]] bool dot() const {
    return g_.dtype == DType::bf16 && v_.level.dot_bf16 && vector_words() == lanes_;
  }
  [[nodiscard]] std::int32_t vector_words() const { return std::min(lanes_, g_.block_words); }
  /// Outputs of a register tile. Blocks have a multiple of eight.
  [[nodiscard]] std::int32_t outputs() const { return kChains / g_.tile_n; }
  [[nodiscard]] std::int32_t tiles() const { return g_.block_out / outputs(); }
  [[nodiscard]] std::int64_t vector_bytes() const { return std::int64_t{4} * vector_words(); }
  [[nodiscard]] std::int64_t row_bytes() const { return std::int64_t{4} * g_.block_words; }
  [[nodiscard]] std::int64_t tile_weight_bytes() const { return row_bytes() * outputs(); }
  [[nodiscard]] std::int64_t tile_sums_bytes() const { return vector_bytes() * outputs() * g_.tile_n; }

  Value* x_ = nullptr;
  Value* x_row_bytes_ = nullptr;
  Value* vectors_ = nullptr;  ///< [block_out][tile_n] vectors
};

void ThinPass::accumulate(Value* sums, Value* first, Value* steps) {
  const Values tokens = token_rows();
  Value* last = v_.plus(first, steps);
  const Values zeros(static_cast<std::size_t>(outputs() * g_.tile_n),
                     llvm::Constant::getNullValue(v_.floats(vector_words())));
  if (tiles() == 1) {
    store_sums(v_.loop("step", first, last, zeros,
                       [&](Value* step, const Values& now) {
                         const Block block = locate(tokens, step);
                         return multiply_tile(block.w, block.xs, now);
                       }),
               vectors_);
    reduce(sums);
    return;
  }
  v_.loop("clear", v_.constant(0), v_.constant(tiles()),
          [&](Value* tile) { store_sums(zeros, v_.at(vectors_, v_.times(tile, tile_sums_bytes()))); });
  v_.loop("step", first, last, [&](Value* step) {
    const Block block = locate(tokens, step);
    (void)v_.loop("tile", v_.constant(0), v_.constant(tiles()), {block.w, vectors_},
                  [&](Value*, const Values& at) -> Values {
                    store_sums(multiply_tile(at[0], block.xs, load_sums(at[1])), at[1]);
                    return {v_.at(at[0], tile_weight_bytes()), v_.at(at[1], tile_sums_bytes())};
                  });
  });
  reduce(sums);
}

/// Missing tokens read the last one; what they give is never stored.
ThinPass::Values ThinPass::token_rows() {
  Value* last = ir_.CreateSub(n_, v_.constant(1));
  Values rows;
  for (std::int32_t token = 0; token < g_.tile_n; ++token) {
    Value* row =
        ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v_.plus(first_token_, v_.constant(token)), last);
    rows.push_back(v_.at(x_, ir_.CreateMul(row, x_row_bytes_)));
  }
  return rows;
}

ThinPass::Block ThinPass::locate(const Values& tokens, Value* step) {
  Value* x = v_.times(v_.entry(tables_.columns, step, "column"), row_bytes());
  Block block{v_.settled(v_.at(w_, v_.times(step, g_.block_bytes()), "w.block")), {}};
  for (Value* token : tokens) block.xs.push_back(v_.settled(v_.at(token, x)));
  return block;
}

ThinPass::Values ThinPass::multiply_tile(Value* w, const Values& xs, Values sums) {
  auto* word_type = g_.dtype == DType::f32 ? static_cast<llvm::Type*>(ir_.getFloatTy()) : ir_.getInt32Ty();
  auto* type = llvm::FixedVectorType::get(word_type, static_cast<unsigned>(vector_words()));
  for (std::int64_t line = 0; line < (tile_weight_bytes() + kLine - 1) / kLine; ++line)
    v_.prefetch(v_.beyond(w, kPrefetchAhead + line * kLine));
  for (std::int64_t k = 0; k < row_bytes(); k += vector_bytes()) {
    Values xv;
    for (Value* x : xs) xv.push_back(v_.load(type, v_.at(x, k), 16));
    for (std::int32_t output = 0; output < outputs(); ++output) {
      Value* weight = v_.load(type, v_.at(w, output * row_bytes() + k), 16);
      for (std::int32_t token = 0; token < g_.tile_n; ++token) {
        Value*& sum = sums[static_cast<std::size_t>(output * g_.tile_n + token)];
        sum = multiply_words(weight, xv[static_cast<std::size_t>(token)], sum);
      }
    }
    sums = v_.pinned(sums);
  }
  return sums;
}

ThinPass::Values ThinPass::load_sums(Value* from) {
  Values sums;
  for (std::int64_t at = 0; at < tile_sums_bytes(); at += vector_bytes())
    sums.push_back(v_.load(v_.floats(vector_words()), v_.at(from, at), 16));
  return sums;
}

void ThinPass::store_sums(const Values& sums, Value* to) {
  for (std::size_t i = 0; i < sums.size(); ++i)
    v_.store(sums[i], v_.at(to, static_cast<std::int64_t>(i) * vector_bytes()), 16);
}

ThinPass::Value* ThinPass::multiply_words(Value* w, Value* x, Value* sum) {
  if (g_.dtype == DType::f32) return v_.multiply_add(x, w, sum);
  if (dot()) {
    auto* pairs = llvm::FixedVectorType::get(ir_.getBFloatTy(), static_cast<unsigned>(2 * vector_words()));
    return ir_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {},
                               {sum, ir_.CreateBitCast(x, pairs), ir_.CreateBitCast(w, pairs)});
  }
  const auto half = [&](Value* words, bool upper) {  // of each word, as float
    Value* bits = upper ? ir_.CreateAnd(words, v_.splat(ir_.getInt32(0xffff0000), vector_words()))
                        : ir_.CreateShl(words, v_.splat(ir_.getInt32(16), vector_words()));
    return ir_.CreateBitCast(bits, v_.floats(vector_words()));
  };
  sum = v_.multiply_add(half(x, false), half(w, false), sum);
  return v_.multiply_add(half(x, true), half(w, true), sum);
}

/// The lanes of each vector become one sum: [tile_n][block_out].
void ThinPass::reduce(Value* sums) {
  constexpr std::int32_t kOutputs = 4;  // at a time: a square of the narrowest vectors
  auto* type = v_.floats(vector_words());
  for (std::int32_t token = 0; token < g_.tile_n; ++token)
    v_.loop("reduce", v_.constant(0), v_.constant(g_.block_out / kOutputs), [&](Value* i) {
      Value* output = v_.times(i, kOutputs);
      Values lanes;
      for (std::int32_t o = 0; o < kOutputs; ++o) {
        Value* number = v_.plus(v_.times(v_.plus(output, v_.constant(o)), g_.tile_n), v_.constant(token));
        Value* sum = v_.load(type, v_.at(vectors_, v_.times(number, vector_bytes())), 16);
        for (std::int32_t width = vector_words() / 2; width >= kOutputs; width /= 2) {
          std::vector<int> low;
          std::vector<int> high;
          for (int lane = 0; lane < width; ++lane) {
            low.push_back(lane);
            high.push_back(lane + width);
          }
          sum = ir_.CreateFAdd(ir_.CreateShuffleVector(sum, low), ir_.CreateShuffleVector(sum, high));
        }
        lanes.push_back(sum);
      }
      lanes = v_.transpose(lanes);
      Value* total = ir_.CreateFAdd(ir_.CreateFAdd(lanes[0], lanes[2]), ir_.CreateFAdd(lanes[1], lanes[3]));
      v_.store(total,
               v_.at(sums, v_.times(v_.plus(output, v_.constant(std::int64_t{token} * g_.block_out)), 4)),
               16);
    });
}

void ThinPass::store_outputs(Value* output_block) {
  constexpr std::int32_t kOutputs = 8;
  const auto out_bytes = static_cast<std::int64_t>(size_of(g_.out_dtype));
  Value* column = v_.at(y_, v_.times(output_block, g_.block_out * out_bytes));
  v_.loop("token", v_.constant(0), present_tokens(), [&](Value* token) {
    Value* from = v_.at(own_sums_, v_.times(token, std::int64_t{4} * g_.block_out));
    Value* to = v_.at(column, ir_.CreateMul(v_.plus(first_token_, token), y_row_bytes_));
    for (std::int32_t output = 0; output < g_.block_out; output += kOutputs) {
      Value* values = v_.load(v_.floats(kOutputs), v_.at(from, std::int64_t{4} * output), 16);
      if (g_.out_dtype == DType::bf16) values = v_.to_bf16(values);
      v_.store(values, v_.at(to, output * out_bytes), 16);
    }
  });
}

}  // namespace

void emit_thin_pass(VectorIr& ir, std::string_view name, const Geometry& geometry, const Tables& tables) {
  ThinPass(ir, geometry, tables).emit(name, "");
}

}  // namespace sparsekiln::cpu
