#include "compiler/cpu/gathering_pass.h"

#include <algorithm>

namespace sparsekiln::cpu {
namespace {

constexpr std::int64_t kLine = 64;
/// Two lines of y in f32; processors fetch lines in pairs.
constexpr std::int32_t kOutputsTogether = 32;
constexpr std::int64_t kRowsAhead = 8;  ///< of y of a convolution, that are prefetched

}  // namespace

std::int32_t GatheringPass::together() const {
  // Blocks of several classes are of different rows of y.
  if (g_.correlation && g_.correlation->classes.size() > 1) return 1;
  return std::max(1, kOutputsTogether / g_.block_out);
}

void GatheringPass::begin() {
  if (g_.feature_major) return;
  gathered_ = stack(g_.weights * gathered_bytes(), "gathered");
  if (together() == 1) return;
  first_waiting_ = stack(8, "first_waiting");
  waiting_ = stack(8, "waiting");
  v_.store(v_.constant(0), waiting_, 8);
  v_.store(v_.constant(0), first_waiting_, 8);
}

void GatheringPass::store_outputs(const CompleteRow& row) const {
  if (g_.channels_first) return store_points(row);
  if (g_.feature_major) return store_features(row);
  Value* output_block = row.output_block;
  if (together() == 1) {
    gather(row, v_.constant(0));
    flush(row.batch_tile, output_block, v_.constant(1));
    return;
  }
  auto* type = ir_.getInt64Ty();
  const auto waiting = [&] { return v_.load(type, waiting_, 8); };
  const auto first = [&] { return v_.load(type, first_waiting_, 8); };
  Value* next = v_.plus(first(), waiting());
  v_.branch("other_row",
            ir_.CreateAnd(ir_.CreateICmpNE(waiting(), v_.constant(0)), ir_.CreateICmpNE(next, output_block)),
            [&] { flush_waiting(row.batch_tile); });
  v_.branch("first_row", ir_.CreateICmpEQ(waiting(), v_.constant(0)),
            [&] { v_.store(output_block, first_waiting_, 8); });
  Value* slot = ir_.CreateAnd(output_block, v_.constant(together() - 1));
  gather(row, v_.times(slot, g_.block_out));
  v_.store(v_.plus(waiting(), v_.constant(1)), waiting_, 8);
  v_.branch("last_row", ir_.CreateICmpEQ(slot, v_.constant(together() - 1)),
            [&] { flush_waiting(row.batch_tile); });
}

void GatheringPass::gather(const CompleteRow& row, Value* first) const {
  for (std::int32_t weight = 0; weight < g_.weights; ++weight)
    gather_sums(row.batch_tile, v_.at(row.sums, weight * g_.weight_sums_bytes()), first,
                v_.at(gathered_, weight * gathered_bytes()));
}

void GatheringPass::end(const BatchTile& batch_tile) const {
  if (g_.feature_major || together() == 1) return;
  v_.branch("rest", ir_.CreateICmpNE(v_.load(ir_.getInt64Ty(), waiting_, 8), v_.constant(0)),
            [&] { flush_waiting(batch_tile); });
}

void GatheringPass::flush_waiting(const BatchTile& batch_tile) const {
  flush(batch_tile, v_.load(ir_.getInt64Ty(), first_waiting_, 8), v_.load(ir_.getInt64Ty(), waiting_, 8));
  v_.store(v_.constant(0), waiting_, 8);
}

/// The block of y's features that a block row is of.
GatheringPass::Value* GatheringPass::features_of(Value* output_block) const {
  if (!g_.correlation || g_.correlation->classes.size() == 1) return output_block;
  return ir_.CreateURem(output_block, layout_.number(LayoutNumber::out_blocks));
}

/// Where y is feature-major, the sums of an output, [block_out][tile_n], are contiguous as y is.
void GatheringPass::store_features(const CompleteRow& row) const {
  Value* first_batch_row = row.batch_tile.first_batch_row;
  v_.loop("output", v_.constant(0), epilogue_.outputs_of(row.output_block), [&](Value* output) {
    Value* feature = v_.plus(v_.times(row.output_block, g_.block_out), output);
    epilogue_.store({.sums = v_.settled(v_.at(row.sums, v_.times(output, std::int64_t{4} * g_.tile_n))),
                     .v_bytes = g_.weight_sums_bytes(),
                     .y = v_.settled(epilogue_.y_at(feature, first_batch_row)),
                     .major = feature,
                     .minor = first_batch_row,
                     .count = present_batch_rows(row.batch_tile)});
  });
}

/// Stores the sums of a convolution: neighbouring points of the tile are neighbours in y.
void GatheringPass::store_points(const CompleteRow& row) const {
  Value* image = row.batch_tile.images.first;
  Value* features = features_of(row.output_block);
  Value* first_feature = v_.times(features, g_.block_out);
  for_each_run(row.batch_tile, row.output_block, [&](Value* number, Value* position, Value* count) {
    v_.loop("output", v_.constant(0), epilogue_.outputs_of(features), [&](Value* output) {
      Value* feature = v_.plus(first_feature, output);
      Value* sum = v_.plus(v_.times(output, g_.tile_n), number);
      epilogue_.store({.sums = v_.settled(v_.at(row.sums, v_.times(sum, 4))),
                       .v_bytes = g_.weight_sums_bytes(),
                       .y = v_.settled(epilogue_.y_at(feature, position, image)),
                       .major = feature,
                       .minor = position,
                       .count = count,
                       .image = image});
    });
  });
}

/// Ends the outputs of `rows` block rows from `first_row` on, writes the batch rows that exist, and
/// prefetches where the next ones will go.
void GatheringPass::flush(const BatchTile& batch_tile, Value* first_row, Value* rows) const {
  const std::int64_t row_bytes = g_.block_out * g_.out_bytes();
  Value* slot = ir_.CreateAnd(first_row, v_.constant(together() - 1));
  Value* waiting = v_.at(gathered_, v_.times(slot, std::int64_t{4} * g_.block_out));
  Value* first_outputs = features_of(first_row);
  for_each_entry(batch_tile, first_row, [&](Value* batch_row, Value* entry) {
    Value* from = v_.at(waiting, v_.times(batch_row, std::int64_t{4} * gathered_outputs()));
    Value* to = v_.settled(epilogue_.y_at(entry, v_.times(first_outputs, g_.block_out)));
    // The next outputs of this row of y, or, where rows follow one another, those of a later one.
    Value* later =
        g_.correlation ? v_.beyond(to, epilogue_.y_bytes(kRowsAhead)) : v_.beyond(to, together() * row_bytes);
    Value* edges = epilogue_.edges_of(entry);
    for (std::int64_t line = 0; line < together() * row_bytes; line += kLine)
      v_.prefetch(v_.beyond(later, line));
    v_.loop("row", v_.constant(0), rows, [&](Value* row) {
      Value* block_row = v_.plus(first_outputs, row);
      epilogue_.store({.sums = v_.settled(v_.at(from, v_.times(row, std::int64_t{4} * g_.block_out))),
                       .v_bytes = gathered_bytes(),
                       .y = v_.settled(v_.at(to, v_.times(row, row_bytes))),
                       .major = entry,
                       .minor = v_.times(block_row, g_.block_out),
                       .count = epilogue_.outputs_of(block_row),
                       .edges = edges});
    });
  });
}

}  // namespace sparsekiln::cpu
