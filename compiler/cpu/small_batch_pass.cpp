#include "compiler/cpu/small_batch_pass.h"

#include <algorithm>
#include <cstddef>

#include <llvm/IR/Intrinsics.h>

#include "compiler/cpu/call.h"

namespace sparsekiln::cpu {

void SmallBatchPass::begin() {
  x_ = v_.argument(ir_.getPtrTy(), offsetof(Call, x), "x");
  x_row_bytes_ = v_.times(v_.argument(ir_.getInt64Ty(), offsetof(Call, x_stride), "x_stride"),
                          static_cast<std::int64_t>(size_of(g_.dtype)));
  vectors_ = stack(tiles() * tile_sums_bytes(), "vectors");
}

void SmallBatchPass::accumulate(Value* sums, Value* first, Value* steps) {
  const Values batch_rows = x_rows();
  for_each_weight(sums, [&](Value* own) { accumulate_weight(own, first, steps, batch_rows); });
}

void SmallBatchPass::accumulate_weight(Value* sums, Value* first, Value* steps, const Values& batch_rows) {
  Value* last = v_.plus(first, steps);
  const Values zeros(static_cast<std::size_t>(kChains), llvm::Constant::getNullValue(v_.floats(sum_lanes())));
  if (tiles() == 1) {
    store_sums(
        v_.loop("step", first, last, zeros,
                [&](Value* step, const Values& now) { return multiply_tile(locate(batch_rows, step), now); }),
        vectors_);
    reduce(sums);
    return;
  }
  v_.loop("clear", v_.constant(0), v_.constant(tiles()),
          [&](Value* tile) { store_sums(zeros, v_.at(vectors_, v_.times(tile, tile_sums_bytes()))); });
  v_.loop("step", first, last, [&](Value* step) {
    const Block block = locate(batch_rows, step);
    (void)v_.loop("tile", v_.constant(0), v_.constant(tiles()), {block.w, block.ahead, vectors_},
                  [&](Value*, const Values& at) -> Values {
                    store_sums(multiply_tile({at[0], at[1], block.xs}, load_sums(at[2])), at[2]);
                    return {v_.at(at[0], tile_weight_bytes()), v_.beyond(at[1], tile_weight_bytes()),
                            v_.at(at[2], tile_sums_bytes())};
                  });
  });
  reduce(sums);
}

/// Missing batch rows read the last one; what they give is never stored.
SmallBatchPass::Values SmallBatchPass::x_rows() {
  Value* last = ir_.CreateSub(n_, v_.constant(1));
  Values rows;
  for (std::int32_t batch_row = 0; batch_row < g_.tile_n; ++batch_row) {
    Value* row = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin,
                                           v_.plus(first_batch_row_, v_.constant(batch_row)), last);
    rows.push_back(v_.at(x_, ir_.CreateMul(row, x_row_bytes_)));
  }
  return rows;
}

SmallBatchPass::Values SmallBatchPass::load_sums(Value* from) {
  Values sums;
  for (std::int64_t at = 0; at < tile_sums_bytes(); at += sum_bytes())
    sums.push_back(v_.load(v_.floats(sum_lanes()), v_.at(from, at), 16));
  return sums;
}

void SmallBatchPass::store_sums(const Values& sums, Value* to) {
  for (std::size_t i = 0; i < sums.size(); ++i)
    v_.store(sums[i], v_.at(to, static_cast<std::int64_t>(i) * sum_bytes()), 16);
}

void SmallBatchPass::store_outputs(Value* output_block) {
  Value* feature = v_.times(output_block, g_.block_out);
  v_.loop("batch_row", v_.constant(0), present_batch_rows(), [&](Value* batch_row) {
    Value* entry = v_.plus(first_batch_row_, batch_row);
    epilogue_.store({.sums = v_.at(own_sums_, v_.times(batch_row, std::int64_t{4} * g_.block_out)),
                     .v_bytes = g_.weight_sums_bytes(),
                     .y = v_.settled(epilogue_.y_at(entry, feature)),
                     .major = entry,
                     .minor = feature,
                     .count = epilogue_.outputs_of(output_block)});
  });
}

}  // namespace sparsekiln::cpu
