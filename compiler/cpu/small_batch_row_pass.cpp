#include <algorithm>

#include <llvm/IR/IntrinsicsX86.h>

#include "compiler/cpu/small_batch_pass.h"

namespace sparsekiln::cpu {
namespace {

/// Bytes of the weight, where it comes from memory: hardware prefetchers stop at the end of a page. A weight
/// that is in a cache arrives faster without.
constexpr std::int64_t kPrefetchAhead = 8192;

/// Lanes are words of k; a register tile is as many rows of a block as there are chains for each batch row.
class SmallBatchRowPass final : public SmallBatchPass {
 public:
  using SmallBatchPass::SmallBatchPass;

 private:
  [[nodiscard]] std::int32_t tiles() const override { return g_.block_out / outputs(); }
  [[nodiscard]] std::int64_t tile_weight_bytes() const override { return row_bytes() * outputs(); }
  [[nodiscard]] std::int32_t sum_lanes() const override { return std::min(lanes_, g_.block_words); }
  [[nodiscard]] Block locate(const Operands& operands, Value* step) const override;
  [[nodiscard]] Values multiply_tile(const Block& block, Values sums) const override;
  void reduce(Value* sums) const override;
  [[nodiscard]] Value* load_words(DType type, Value* address, unsigned align) const;
  [[nodiscard]] Value* scaled_words(Value* words, Value* block_scale) const;
  [[nodiscard]] Value* multiply_words(Value* w, Value* x, Value* sum) const;
  /// An element of each pair, as float.
  [[nodiscard]] Value* half(Value* words, bool upper) const;

  [[nodiscard]] bool dot() const { return g_.pairs() && v_.level.dot_bf16 && sum_lanes() == lanes_; }
  /// Outputs of a register tile. Blocks have a multiple of eight.
  [[nodiscard]] std::int32_t outputs() const { return kChains / g_.tile_n; }
  [[nodiscard]] std::int64_t row_bytes() const { return std::int64_t{g_.word_bytes} * g_.block_words; }
};

SmallBatchPass::Block SmallBatchRowPass::locate(const Operands& operands, Value* step) const {
  Value* x = v_.times(v_.entry(tables_.columns, step, "column"), x_word_bytes() * g_.block_words);
  Value* w = v_.settled(v_.at(operands.w, v_.times(step, g_.block_bytes()), "w.block"));
  Block block{w, v_.beyond(w, kPrefetchAhead), {}};
  for (Value* batch_row : operands.batch_rows) block.xs.push_back(v_.settled(v_.at(batch_row, x)));
  return block;
}

SmallBatchPass::Values SmallBatchRowPass::multiply_tile(const Block& block, Values sums) const {
  const std::int64_t w_bytes = std::int64_t{g_.word_bytes} * sum_lanes();  // of a vector
  const std::int64_t x_bytes = x_word_bytes() * sum_lanes();
  if (layout_.known(LayoutNumber::streams).value_or(1) != 0)
    for (std::int64_t line = 0; line < (tile_weight_bytes() + kLine - 1) / kLine; ++line)
      v_.prefetch(v_.beyond(block.ahead, line * kLine), VectorIr::Cache::second);
  for (std::int64_t k = 0; k < g_.block_words / sum_lanes(); ++k) {
    Values xv;
    for (Value* x : block.xs)
      xv.push_back(load_words(x_type(), v_.at(x, k * x_bytes), g_.aligned(g_.dtype, x_bytes)));
    for (std::int32_t output = 0; output < outputs(); ++output) {
      Value* words = load_words(g_.dtype, v_.at(block.w, output * row_bytes() + k * w_bytes),
                                static_cast<unsigned>(std::min<std::int64_t>(16, w_bytes)));
      Value* weight = scaled_words(words, block.block_scale);
      for (std::int32_t batch_row = 0; batch_row < g_.tile_n; ++batch_row) {
        Value*& sum = sums[static_cast<std::size_t>(output * g_.tile_n + batch_row)];
        sum = multiply_words(weight, xv[static_cast<std::size_t>(batch_row)], sum);
      }
    }
    sums = v_.pinned(sums);
  }
  return sums;
}

/// Floats, or where they are pairs the words as integers.
SmallBatchPass::Value* SmallBatchRowPass::load_words(DType type, Value* address, unsigned align) const {
  return g_.pairs() ? v_.load(v_.ints(sum_lanes()), address, align)
                    : v_.load_floats(type, address, sum_lanes(), align);
}

SmallBatchPass::Value* SmallBatchRowPass::half(Value* words, bool upper) const {
  Value* bits = upper ? ir_.CreateAnd(words, v_.splat(ir_.getInt32(0xffff0000), sum_lanes()))
                      : ir_.CreateShl(words, v_.splat(ir_.getInt32(16), sum_lanes()));
  return ir_.CreateBitCast(bits, v_.floats(sum_lanes()));
}

SmallBatchPass::Value* SmallBatchRowPass::scaled_words(Value* words, Value* block_scale) const {
  if (!g_.pairs()) return scaled_floats(words, block_scale);
  if (block_scale == nullptr) return words;
  const auto rounded = [&](bool upper) {
    return ir_.CreateZExt(times_block_scale(half(words, upper), block_scale), v_.ints(sum_lanes()));
  };
  return ir_.CreateOr(rounded(false), ir_.CreateShl(rounded(true), v_.splat(ir_.getInt32(16), sum_lanes())));
}

SmallBatchPass::Value* SmallBatchRowPass::multiply_words(Value* w, Value* x, Value* sum) const {
  if (!g_.pairs()) return v_.multiply_add(x, w, sum);
  if (dot()) {
    auto* pairs = llvm::FixedVectorType::get(ir_.getBFloatTy(), static_cast<unsigned>(2 * sum_lanes()));
    return ir_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {},
                               {sum, ir_.CreateBitCast(x, pairs), ir_.CreateBitCast(w, pairs)});
  }
  sum = v_.multiply_add(half(x, false), half(w, false), sum);
  return v_.multiply_add(half(x, true), half(w, true), sum);
}

/// The lanes of each vector become one sum.
void SmallBatchRowPass::reduce(Value* sums) const {
  constexpr std::int32_t kOutputs = 4;  // at a time: a square of the narrowest vectors
  auto* type = v_.floats(sum_lanes());
  for (std::int32_t batch_row = 0; batch_row < g_.tile_n; ++batch_row)
    v_.loop("reduce", v_.constant(0), v_.constant(g_.block_out / kOutputs), [&](Value* i) {
      Value* output = v_.times(i, kOutputs);
      Values lanes;
      for (std::int32_t o = 0; o < kOutputs; ++o) {
        Value* number = v_.plus(v_.times(v_.plus(output, v_.constant(o)), g_.tile_n), v_.constant(batch_row));
        Value* sum = v_.load(type, v_.at(vectors_, v_.times(number, sum_bytes())), 16);
        for (std::int32_t width = sum_lanes() / 2; width >= kOutputs; width /= 2) {
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
               v_.at(sums, v_.times(v_.plus(output, v_.constant(std::int64_t{batch_row} * g_.block_out)), 4)),
               16);
    });
}

}  // namespace

void emit_small_batch_row_pass(VectorIr& ir, std::string_view name, const Geometry& geometry,
                               LayoutIr& layout, std::string_view pack) {
  SmallBatchRowPass(ir, geometry, layout).emit(name, pack);
}

}  // namespace sparsekiln::cpu
