#include "compiler/cpu/small_batch_pass.h"

#include <cstddef>

#include <llvm/IR/Intrinsics.h>

#include "compiler/cpu/call.h"

namespace sparsekiln::cpu {

void SmallBatchPass::begin() {
  x_ = v_.argument(ir_.getPtrTy(), offsetof(Call, x), "x");
  x_row_bytes_ = v_.times(v_.argument(ir_.getInt64Ty(), offsetof(Call, x_stride), "x_stride"),
                          static_cast<std::int64_t>(size_of(g_.dtype)));
  vectors_ = stack(tiles() * tile_sums_bytes(), "vectors");
  if (g_.cuts_in) copied_ = stack(copied_block_bytes(), "copied");
  if (g_.feature_major) transposed_ = stack(std::int64_t{4} * g_.tile_n * g_.weights, "transposed");
}

void SmallBatchPass::accumulate(const ItemSteps& item) const {
  const Values batch_rows = x_rows(item.batch_tile);
  for_each_weight(item.sums, [&](Value* w, Value* sums) { accumulate_weight(item, {w, batch_rows}, sums); });
}

void SmallBatchPass::accumulate_weight(const ItemSteps& item, const Operands& operands, Value* sums) const {
  Value* last = v_.plus(item.first, item.count);
  const Values zeros(static_cast<std::size_t>(kChains), llvm::Constant::getNullValue(v_.floats(sum_lanes())));
  if (tiles() == 1 && !g_.block_scales) {
    store_sums(v_.loop("step", item.first, last, zeros,
                       [&](Value* step, const Values& now) {
                         return multiply_tile(prepared(operands, step, nullptr), now);
                       }),
               vectors_);
    reduce(sums);
    return;
  }
  v_.loop("clear", v_.constant(0), v_.constant(tiles()),
          [&](Value* tile) { store_sums(zeros, v_.at(vectors_, v_.times(tile, tile_sums_bytes()))); });
  v_.loop("step", item.first, last, [&](Value* step) {
    if (!g_.block_scales) return multiply_block(prepared(operands, step, nullptr));
    Value* block_scale = block_scale_of(step);
    v_.branch("used", is_used(block_scale), [&] { multiply_block(prepared(operands, step, block_scale)); });
  });
  reduce(sums);
}

void SmallBatchPass::multiply_block(const Block& block) const {
  (void)v_.loop("tile", v_.constant(0), v_.constant(tiles()), {block.w, block.ahead, vectors_},
                [&](Value*, const Values& at) -> Values {
                  store_sums(multiply_tile({at[0], at[1], block.xs, block.block_scale}, load_sums(at[2])),
                             at[2]);
                  return {v_.at(at[0], tile_weight_bytes()), v_.beyond(at[1], tile_weight_bytes()),
                          v_.at(at[2], tile_sums_bytes())};
                });
}

/// The block of a step, copied if it lies where x has no features.
SmallBatchPass::Block SmallBatchPass::prepared(const Operands& operands, Value* step,
                                               Value* block_scale) const {
  Block block = locate(operands, step);
  block.block_scale = block_scale;
  if (copied_ == nullptr) return block;
  Value* cut =
      ir_.CreateICmpEQ(v_.entry(tables_.columns, step, "column"), layout_.number(LayoutNumber::last_column));
  v_.branch("cut", cut, [&] {
    copy_block(block.w, copied_, block_scale);
    zero_missing(copied_);
  });
  block.w = v_.settled(ir_.CreateSelect(cut, copied_, block.w));
  if (block_scale != nullptr)
    block.block_scale = ir_.CreateSelect(cut, llvm::ConstantFP::get(ir_.getFloatTy(), 1), block_scale);
  return block;
}

SmallBatchPass::Value* SmallBatchPass::scaled_floats(Value* values, Value* block_scale) const {
  return block_scale == nullptr ? values : v_.widened(g_.dtype, times_block_scale(values, block_scale));
}

/// Missing batch rows read the last one; what they give is never stored.
SmallBatchPass::Values SmallBatchPass::x_rows(const BatchTile& batch_tile) const {
  if (g_.packs_x) {
    Value* row_bytes = v_.times(layout_.number(LayoutNumber::words), 4);
    Values rows;
    for (std::int32_t batch_row = 0; batch_row < g_.tile_n; ++batch_row)
      rows.push_back(v_.at(batch_tile.panel, ir_.CreateMul(v_.constant(batch_row), row_bytes)));
    return rows;
  }
  Value* last = ir_.CreateSub(n_, v_.constant(1));
  Values rows;
  for (std::int32_t batch_row = 0; batch_row < g_.tile_n; ++batch_row) {
    Value* row = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin,
                                           v_.plus(batch_tile.first_batch_row, v_.constant(batch_row)), last);
    rows.push_back(v_.at(x_, ir_.CreateMul(row, x_row_bytes_)));
  }
  return rows;
}

SmallBatchPass::Values SmallBatchPass::load_sums(Value* from) const {
  Values sums;
  for (std::int64_t at = 0; at < tile_sums_bytes(); at += sum_bytes())
    sums.push_back(v_.load(v_.floats(sum_lanes()), v_.at(from, at), 16));
  return sums;
}

void SmallBatchPass::store_sums(const Values& sums, Value* to) const {
  for (std::size_t i = 0; i < sums.size(); ++i)
    v_.store(sums[i], v_.at(to, static_cast<std::int64_t>(i) * sum_bytes()), 16);
}

void SmallBatchPass::store_outputs(const CompleteRow& row) const {
  if (g_.feature_major) return store_features(row);
  Value* feature = v_.times(row.output_block, g_.block_out);
  v_.loop("batch_row", v_.constant(0), present_batch_rows(row.batch_tile), [&](Value* batch_row) {
    Value* entry = v_.plus(row.batch_tile.first_batch_row, batch_row);
    epilogue_.store({.sums = v_.at(row.sums, v_.times(batch_row, std::int64_t{4} * g_.block_out)),
                     .v_bytes = g_.weight_sums_bytes(),
                     .y = v_.settled(epilogue_.y_at(entry, feature)),
                     .major = entry,
                     .minor = feature,
                     .count = epilogue_.outputs_of(row.output_block)});
  });
}

/// Each output's sums are brought together: in y, batch rows are neighbours.
void SmallBatchPass::store_features(const CompleteRow& row) const {
  Value* first_batch_row = row.batch_tile.first_batch_row;
  v_.loop("output", v_.constant(0), epilogue_.outputs_of(row.output_block), [&](Value* output) {
    for (std::int32_t weight = 0; weight < g_.weights; ++weight)
      for (std::int32_t batch_row = 0; batch_row < g_.tile_n; ++batch_row) {
        const std::int64_t from =
            weight * g_.weight_sums_bytes() + std::int64_t{4} * batch_row * g_.block_out;
        Value* sum = v_.load(ir_.getFloatTy(), v_.at(v_.at(row.sums, v_.times(output, 4)), from), 4);
        v_.store(sum, v_.at(transposed_, std::int64_t{4} * (weight * g_.tile_n + batch_row)), 4);
      }
    Value* feature = v_.plus(v_.times(row.output_block, g_.block_out), output);
    epilogue_.store({.sums = transposed_,
                     .v_bytes = std::int64_t{4} * g_.tile_n,
                     .y = v_.settled(epilogue_.y_at(feature, first_batch_row)),
                     .major = feature,
                     .minor = first_batch_row,
                     .count = present_batch_rows(row.batch_tile)});
  });
}

}  // namespace sparsekiln::cpu
