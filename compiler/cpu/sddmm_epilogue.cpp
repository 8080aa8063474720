#include <algorithm>
#include <cstddef>
#include <utility>

#include <llvm/IR/Intrinsics.h>

#include "compiler/cpu/call.h"
#include "compiler/cpu/sddmm_pass.h"

namespace sparsekiln::cpu {

void SddmmPass::locate_scale() {
  if (!g_.scale) return;
  alpha_ = v_.load(ir_.getFloatTy(), v_.at(v_.call, offsetof(Call, alpha)), 4, "alpha");
  beta_ = v_.load(ir_.getFloatTy(), v_.at(v_.call, offsetof(Call, beta)), 4, "beta");
  adds_old_ = ir_.CreateFCmpUNE(beta_, llvm::ConstantFP::get(ir_.getFloatTy(), 0), "adds_old");
}

void SddmmPass::locate_ends() {
  auto* pointer = ir_.getPtrTy();
  locate_scale();
  if (g_.block_scales) block_scales_ = v_.argument(pointer, offsetof(Call, block_scales), "block_scales");
  if (g_.bias_gradient) {
    dbias_ = v_.argument(pointer, offsetof(Call, dbias), "dbias");
    bias_sums_ = stack(g_.bias.row_bytes(), "bias_sums");
    own_bias_ = g_.bias_of_columns() ? stack(g_.chunk * g_.bias.row_bytes(), "own_bias") : own_dy_;
    bias_.emplace(v_, g_, layout_, g_.bias);
  }
  if (!g_.block_scale_gradient) return;
  w_ = v_.argument(pointer, offsetof(Call, w), "w");
  dblock_scales_ = g_.sums_block_scales_of_taps
                       ? v_.argument(pointer, offsetof(Call, workspace), "block_scales_of_taps")
                       : v_.argument(pointer, offsetof(Call, dblock_scales), "dblock_scales");
  block_scale_sums_ = stack(std::int64_t{4} * g_.lanes * g_.run_blocks, "block_scale_sums");
}

SddmmPass::Value* SddmmPass::block_scale_of(const Run& run, std::int32_t block) {
  Value* number = block_number(run, block);
  if (layout_.has(kScaleOfBlock))
    number = v_.entry(layout_.table(kScaleOfBlock), number, "scale_number");
  else
    number = v_.quotient(number, std::max(1, g_.blocks_per_scale));
  return v_.load(ir_.getFloatTy(), v_.at(block_scales_, v_.times(number, 4)), 4, "block_scale");
}

SddmmPass::Value* SddmmPass::needed_batch_rows(const Run& run) {
  if (!g_.block_scales || g_.block_scale_gradient) return n_;
  Value* any = ir_.getFalse();
  for (std::int32_t block = 0; block < run.blocks; ++block)
    any = ir_.CreateOr(
        any, ir_.CreateFCmpUNE(block_scale_of(run, block), llvm::ConstantFP::get(ir_.getFloatTy(), 0)));
  return ir_.CreateSelect(any, n_, v_.constant(0), "needed");
}

/// The worker's share of the block columns.
void SddmmPass::sum_bias_of_columns() {
  Value* workers = layout_.number(LayoutNumber::workers);
  Value* columns = ir_.CreateUDiv(layout_.number(g_.bias.panels()), v_.constant(g_.bias.panels_of_block()));
  Value* first = ir_.CreateUDiv(ir_.CreateMul(v_.worker, columns), workers);
  Value* end = ir_.CreateUDiv(ir_.CreateMul(v_.plus(v_.worker, v_.constant(1)), columns), workers);
  v_.loop("bias_column", first, end, [&](Value* column) { sum_bias(column); });
}

/// dbias = alpha · Σ dy + beta · dbias, each sum one chain of additions, ascending in pair and batch row, for
/// a block of dy's features.
void SddmmPass::sum_bias(Value* block) {
  const PanelSide& side = g_.bias;
  const std::int32_t lanes = std::min(v_.level.lanes, side.width);
  const Values zeros(static_cast<std::size_t>(side.width / lanes),
                     llvm::Constant::getNullValue(v_.floats(lanes)));
  v_.loop("bias_panel", v_.constant(0), v_.constant(side.panels_of_block()), [&](Value* panel) {
    Value* number = v_.plus(v_.times(block, side.panels_of_block()), panel);
    const auto add_batch_rows = [&](Value* from, Value* count, const Values& before) {
      return v_.loop(
          "bias_batch_row", v_.constant(0), count, before, [&](Value* batch_row, const Values& now) {
            Value* at = v_.settled(v_.at(from, v_.times(batch_row, side.row_bytes())));
            Values next;
            for (std::size_t i = 0; i < now.size(); ++i)
              next.push_back(ir_.CreateFAdd(
                  now[i], v_.load(v_.floats(lanes),
                                  v_.at(at, std::int64_t{4} * lanes * static_cast<std::int64_t>(i)), 16)));
            return next;
          });
    };
    const Values sums =
        v_.loop("bias_pair", v_.constant(0), pairs_, zeros, [&](Value* pair, const Values& sum) {
          Value* rows = bias_->rows();
          if (own_bias_ == nullptr)
            return add_batch_rows(v_.at(bias_->packed(pair), ir_.CreateMul(number, bias_->panel_bytes())),
                                  rows, sum);
          Value* chunks = ir_.CreateUDiv(v_.plus(rows, v_.constant(g_.chunk - 1)), v_.constant(g_.chunk));
          return v_.loop("bias_chunk", v_.constant(0), chunks, sum, [&](Value* chunk, const Values& now) {
            Value* begin = v_.times(chunk, g_.chunk);
            Value* end =
                ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v_.plus(begin, v_.constant(g_.chunk)), rows);
            bias_->gather(pair, number, v_.plus(number, v_.constant(1)), begin, end, own_bias_,
                          v_.constant(0));
            return add_batch_rows(own_bias_, ir_.CreateSub(end, begin), now);
          });
        });
    for (std::size_t i = 0; i < sums.size(); ++i)
      v_.store(sums[i], v_.at(bias_sums_, std::int64_t{4} * lanes * static_cast<std::int64_t>(i)), 16);
    store_bias(block, panel);
  });
}

SddmmPass::Value* SddmmPass::scaled(Value* sum, Value* address) {
  if (!g_.scale) return sum;
  sum = ir_.CreateFMul(sum, alpha_);
  return v_.loop("old", v_.constant(0), ir_.CreateZExt(adds_old_, ir_.getInt64Ty()), {sum},
                 [&](Value*, const Values& now) -> Values {
                   return {v_.multiply_add(beta_, v_.load(ir_.getFloatTy(), address, 4), now[0])};
                 })[0];
}

void SddmmPass::store_bias(Value* block, Value* panel) {
  const PanelSide& side = g_.bias;
  Value* first = v_.plus(v_.times(block, side.block_width), v_.times(panel, side.width));
  Value* count = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v_.constant(side.width),
                                           ir_.CreateSub(layout_.number(side.features()), first));
  v_.loop("bias_output", v_.constant(0), count, [&](Value* output) {
    Value* sum = v_.load(ir_.getFloatTy(), v_.at(bias_sums_, v_.times(output, 4)), 4);
    Value* to = v_.at(dbias_, v_.times(v_.plus(first, output), 4));
    v_.store(scaled(sum, to), to, 4);
  });
}

/// The offset of a tile's first accumulator within dw and W.
SddmmPass::Value* SddmmPass::element_of(const Run& run, const Tile& tile) {
  Value* output = v_.plus(v_.times(run.dy_panel, g_.dy.width), tile.output);
  Value* feature = v_.plus(v_.times(run.x_panel, g_.x.width), tile.feature);
  Value* in_block = v_.plus(v_.times(output, g_.block.in), feature);
  return v_.plus(v_.times(run.first, g_.block_elements()), in_block);
}

/// Elements from there to another sum.
std::int64_t SddmmPass::vector_offset(const Tile& tile, std::int32_t output, std::int32_t vector) const {
  return block_of(tile, vector) * g_.block_elements() + std::int64_t{output} * g_.block.in +
         feature_of(tile, vector);
}

/// Which lanes of a vector of sums exist; null where all do, of whole blocks.
SddmmPass::Value* SddmmPass::within(const Run& run, const Tile& tile, std::int32_t output,
                                    std::int32_t vector) {
  if (!g_.x.cut && !g_.dy.cut) return nullptr;
  std::vector<std::uint64_t> lane(static_cast<std::size_t>(g_.lanes));
  for (std::size_t i = 0; i < lane.size(); ++i) lane[i] = i;
  Value* first_output =
      v_.plus(v_.plus(v_.times(run.row, g_.block.out), v_.times(run.dy_panel, g_.dy.width)), tile.output);
  Value* column = v_.entry(tables_.columns, block_number(run, block_of(tile, vector)), "column");
  Value* feature = v_.plus(v_.plus(v_.times(column, g_.block.in), v_.times(run.x_panel, g_.x.width)),
                           v_.plus(tile.feature, v_.constant(feature_of(tile, vector))));
  Value* lanes = v_.plus(v_.splat(feature, g_.lanes), llvm::ConstantDataVector::get(ir_.getContext(), lane));
  Value* existing_features = ir_.CreateICmpSLT(lanes, v_.splat(layout_.number(g_.x.features()), g_.lanes));
  Value* output_exists =
      ir_.CreateICmpSLT(v_.plus(first_output, v_.constant(output)), layout_.number(g_.dy.features()));
  return ir_.CreateAnd(existing_features, v_.splat(output_exists, g_.lanes));
}

/// Writes zeros beyond the edges of partial blocks, whatever the accumulators hold.
SddmmPass::Value* SddmmPass::cut(const Run& run, const Tile& tile, std::size_t number, Value* vector) {
  const auto i = static_cast<std::int32_t>(number);
  Value* exists = within(run, tile, i / tile.vectors, i % tile.vectors);
  if (exists == nullptr) return vector;
  return ir_.CreateSelect(exists, vector, llvm::Constant::getNullValue(v_.floats(g_.lanes)));
}

/// Each lane of a block's vector sums the products of its tiles with W in their order.
void SddmmPass::add_to_block_scale_gradients(const Run& run, const Tile& tile, const Values& sums) {
  const auto element = static_cast<std::int64_t>(size_of(g_.dtype));
  const auto align = static_cast<unsigned>(std::min<std::int64_t>(16, element * g_.lanes));
  auto* type = v_.floats(g_.lanes);
  Value* w = v_.settled(v_.at(w_, v_.times(element_of(run, tile), element)));
  for (std::int32_t block = block_of(tile, 0); block <= block_of(tile, tile.vectors - 1); ++block) {
    Value* address = v_.at(block_scale_sums_, std::int64_t{4} * g_.lanes * block);
    Value* sum = v_.load(type, address, 16);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto output = static_cast<std::int32_t>(i) / tile.vectors;
      const auto vector = static_cast<std::int32_t>(i) % tile.vectors;
      if (block_of(tile, vector) != block) continue;
      Value* weight =
          v_.load_floats(g_.dtype, v_.at(w, element * vector_offset(tile, output, vector)), g_.lanes, align);
      sum = v_.multiply_add(sums[i], cut(run, tile, i, weight), sum);
    }
    v_.store(sum, address, 16);
  }
}

void SddmmPass::clear_block_scale_sums(std::int32_t blocks) {
  if (!g_.block_scale_gradient) return;
  for (std::int32_t block = 0; block < blocks; ++block)
    v_.store(llvm::Constant::getNullValue(v_.floats(g_.lanes)),
             v_.at(block_scale_sums_, std::int64_t{4} * g_.lanes * block), 16);
}

/// The upper half of the lanes is added to the lower one until one is left.
void SddmmPass::store_block_scale_gradients(const Run& run) {
  for (std::int32_t block = 0; block < run.blocks; ++block) {
    Value* sum =
        v_.load(v_.floats(g_.lanes), v_.at(block_scale_sums_, std::int64_t{4} * g_.lanes * block), 16);
    for (std::int32_t half = g_.lanes / 2; half > 0; half /= 2) {
      std::vector<int> low;
      std::vector<int> high;
      for (std::int32_t lane = 0; lane < half; ++lane) {
        low.push_back(lane);
        high.push_back(half + lane);
      }
      sum = ir_.CreateFAdd(ir_.CreateShuffleVector(sum, low), ir_.CreateShuffleVector(sum, high));
    }
    Value* to = v_.at(dblock_scales_, v_.times(block_number(run, block), 4));
    sum = ir_.CreateExtractElement(sum, std::uint64_t{0});
    v_.store(g_.sums_block_scales_of_taps ? sum : scaled(sum, to), to, 4);
  }
}

void SddmmPass::emit_block_scales_of_taps(std::string_view name) {
  v_.begin_pass(name);
  auto* pointer = ir_.getPtrTy();
  auto* type = ir_.getFloatTy();
  locate_scale();
  Value* sums = v_.argument(pointer, offsetof(Call, workspace), "block_scales_of_taps");
  Value* dblock_scales = v_.argument(pointer, offsetof(Call, dblock_scales), "dblock_scales");
  Value* first_blocks = layout_.has(kFirstBlockOfScale) ? layout_.table(kFirstBlockOfScale) : nullptr;
  const auto first_block = [&](Value* block_scale, const char* label) {
    return first_blocks == nullptr ? v_.times(block_scale, g_.blocks_per_scale)
                                   : v_.entry(first_blocks, block_scale, label);
  };
  Value* block_scales = layout_.number(LayoutNumber::block_scales);
  Value* workers = layout_.number(LayoutNumber::workers);
  Value* first = ir_.CreateUDiv(ir_.CreateMul(v_.worker, block_scales), workers);
  Value* end = ir_.CreateUDiv(ir_.CreateMul(v_.plus(v_.worker, v_.constant(1)), block_scales), workers);
  v_.loop("block_scale", first, end, [&](Value* block_scale) {
    Value* taps = first_block(block_scale, "taps");
    Value* taps_end = first_block(v_.plus(block_scale, v_.constant(1)), "taps.end");
    Value* sum = v_.loop("tap", taps, taps_end, {llvm::ConstantFP::get(type, 0)},
                         [&](Value* block, const Values& now) -> Values {
                           return {ir_.CreateFAdd(now[0], v_.load(type, v_.at(sums, v_.times(block, 4)), 4))};
                         })[0];
    Value* to = v_.at(dblock_scales, v_.times(block_scale, 4));
    v_.store(scaled(sum, to), to, 4);
  });
  v_.end_pass();
}

void SddmmPass::store_tile(const Run& run, const Tile& tile, Values sums) {
  const auto element = static_cast<std::int64_t>(size_of(g_.out_dtype));
  Value* base = v_.settled(v_.at(dw_, v_.times(element_of(run, tile), element)));
  const auto vector_of = [&](std::size_t i) { return static_cast<std::int32_t>(i) % tile.vectors; };
  const auto address = [&](std::size_t i) {
    return v_.at(base,
                 element * vector_offset(tile, static_cast<std::int32_t>(i) / tile.vectors, vector_of(i)));
  };
  const auto cut_all = [&] {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = cut(run, tile, i, sums[i]);
  };
  if (g_.block_scale_gradient) {
    cut_all();
    add_to_block_scale_gradients(run, tile, sums);
  }
  Values scales;  // of each block
  for (std::int32_t block = 0; block < run.blocks && g_.block_scales; ++block) {
    Value* block_scale = block_scale_of(run, block);
    scales.push_back(v_.splat(g_.scale ? ir_.CreateFMul(alpha_, block_scale) : block_scale, g_.lanes));
  }
  Value* alpha = g_.scale ? v_.splat(alpha_, g_.lanes) : nullptr;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (g_.block_scales) {
      // A block scale of 0 makes zeros of whatever was accumulated.
      Value* scale = scales[static_cast<std::size_t>(block_of(tile, vector_of(i)))];
      llvm::Constant* zeros = llvm::Constant::getNullValue(scale->getType());
      sums[i] = ir_.CreateSelect(ir_.CreateFCmpOEQ(scale, zeros), zeros, ir_.CreateFMul(sums[i], scale));
    } else if (g_.scale) {
      sums[i] = ir_.CreateFMul(sums[i], alpha);
    }
  }
  if (g_.scale) {
    // Where beta is 0 nothing is read.
    sums = v_.loop("old", v_.constant(0), ir_.CreateZExt(adds_old_, ir_.getInt64Ty()), std::move(sums),
                   [&](Value*, const Values& now) {
                     Values added;
                     Value* beta = v_.splat(beta_, g_.lanes);
                     const auto align = static_cast<unsigned>(std::min<std::int64_t>(16, element * g_.lanes));
                     for (std::size_t i = 0; i < now.size(); ++i)
                       added.push_back(v_.multiply_add(
                           beta, v_.load_floats(g_.out_dtype, address(i), g_.lanes, align), now[i]));
                     return added;
                   });
  }
  cut_all();  // after all factors, which may be Inf or NaN
  const bool short_nans = g_.dtype == DType::bf16 && !g_.block_scales && !g_.scale;
  Values addresses;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = v_.rounded_to(g_.out_dtype, sums[i], short_nans);
    addresses.push_back(address(i));
  }
  store_vectors(sums, addresses, tile.streams);
}

void SddmmPass::store_vectors(const Values& values, const Values& addresses, Value* streams) {
  const auto store = [&](bool streamed) {
    for (std::size_t i = 0; i < values.size(); ++i) store_vector(values[i], addresses[i], streamed);
  };
  if (const auto* known = llvm::dyn_cast<llvm::ConstantInt>(streams)) return store(known->isOne());
  v_.branch("past_caches", streams, [&] { store(true); });
  v_.branch("into_caches", ir_.CreateNot(streams), [&] { store(false); });
}

/// dw is aligned to 16 bytes: no wider vector can go past the caches.
void SddmmPass::store_vector(Value* value, Value* address, bool streams) {
  const auto* type = llvm::cast<llvm::FixedVectorType>(value->getType());
  const auto lanes = static_cast<std::int32_t>(type->getNumElements());
  const auto element = static_cast<std::int32_t>(type->getScalarSizeInBits()) / 8;
  if (!streams) return v_.store(value, address, static_cast<unsigned>(std::min(16, element * lanes)));
  const std::int32_t lanes_together = 16 / element;
  for (std::int32_t first = 0; first < lanes; first += lanes_together) {
    std::vector<int> part;
    for (std::int32_t lane = 0; lane < lanes_together; ++lane) part.push_back(first + lane);
    auto* store =
        ir_.CreateAlignedStore(lanes_together == lanes ? value : ir_.CreateShuffleVector(value, part),
                               v_.at(address, std::int64_t{first} * element), llvm::Align(16));
    auto* one = llvm::ConstantAsMetadata::get(ir_.getInt32(1));
    store->setMetadata(llvm::LLVMContext::MD_nontemporal, llvm::MDNode::get(ir_.getContext(), {one}));
  }
}

}  // namespace sparsekiln::cpu
