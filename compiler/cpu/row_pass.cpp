#include "compiler/cpu/row_pass.h"

#include <algorithm>
#include <cstddef>

#include <llvm/IR/Intrinsics.h>

#include "compiler/cpu/call.h"

namespace sparsekiln::cpu {

VectorIr::Values locate_weights(VectorIr& v, std::int32_t weights) {
  llvm::Type* const pointer = v.ir.getPtrTy();
  VectorIr::Values all{v.argument(pointer, offsetof(Call, w), "w")};
  if (weights == 1) return all;
  llvm::Value* ahead =
      v.ir.CreatePtrDiff(v.ir.getInt8Ty(), v.argument(pointer, offsetof(Call, v), "v"), all.front());
  for (std::int32_t weight = 1; weight < weights; ++weight)
    all.push_back(v.at(all.front(), v.times(ahead, weight)));
  return all;
}

RowPass::RowPass(VectorIr& v, const Geometry& geometry, LayoutIr& layout)
    : v_(v),
      ir_(v.ir),
      g_(geometry),
      layout_(layout),
      lanes_(v.level.lanes),
      epilogue_(v, geometry, layout) {}

void RowPass::emit(std::string_view name, std::string_view pack) {
  begin_pass(name, pack);
  if (g_.correlation) {
    strips();
  } else {
    call_pack(v_.batch_tile);
    items({.first_batch_row = v_.times(v_.batch_tile, g_.tile_n), .panel = workspace_.panel});
  }
  v_.end_pass();
}

void RowPass::begin_pass(std::string_view name, std::string_view pack) {
  v_.begin_pass(name);
  if (!pack.empty()) pack_ = v_.module.getFunction(pack);
  tables_ = locate_tables(layout_, g_);
  item_sums_ = stack(g_.sums_bytes, "sums");
  if (grouped()) group_sums_ = stack(g_.group_items * g_.sums_bytes, "group_sums");
  begin();
  if (g_.block_scales)
    block_scales_ = v_.argument(ir_.getPtrTy(), offsetof(Call, block_scales), "block_scales");
  weights_ = locate_weights(v_, g_.weights);
  epilogue_.begin();
  n_ = v_.argument(ir_.getInt64Ty(), offsetof(Call, n), "n");
  workspace_ = locate_workspace(v_, v_.batch_tile, g_, layout_);
}

void RowPass::call_pack(Value* strip) const {
  if (pack_ == nullptr) return;
  ir_.CreateCall(pack_, {v_.call, ir_.CreateTrunc(v_.worker, ir_.getInt32Ty()),
                         ir_.CreateTrunc(strip, ir_.getInt32Ty())});
}

void RowPass::strips() const {
  Value* first = v_.times(v_.batch_tile, g_.panel_strips);
  Value* last = v_.plus(first, v_.constant(g_.panel_strips));
  v_.loop("strip", first, last, [&](Value* number) {
    const Strip now = strip(v_, number, n_, g_);
    Value* points = ir_.CreateSub(image_points(v_, g_), now.first_point);
    Value* there =
        ir_.CreateAnd(ir_.CreateICmpSGT(points, v_.constant(0)), ir_.CreateICmpSLT(now.images.first, n_));
    v_.branch("there", there, [&] {
      call_pack(number);
      Value* tiles = ir_.CreateSDiv(v_.plus(points, v_.constant(g_.tile_n - 1)), v_.constant(g_.tile_n));
      tiles = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, tiles, v_.constant(g_.strip_tiles));
      v_.loop("tile", v_.constant(0), tiles, [&](Value* of_strip) {
        Value* point = v_.times(of_strip, g_.tile_n);
        items({.first_batch_row = v_.plus(now.first_point, point),
               .panel = v_.at(workspace_.panel, v_.times(point, 4)),
               .images = now.images});
      });
    });
  });
}

void RowPass::items(const BatchTile& batch_tile) const {
  Value* first = v_.entry(tables_.worker_begin, v_.worker, "items.begin");
  Value* last = v_.entry(tables_.worker_begin, v_.plus(v_.worker, v_.constant(1)), "items.end");
  if (grouped())
    groups(batch_tile);
  else
    v_.loop("item", first, last, [&](Value* number) { item(batch_tile, number); });
  end(batch_tile);
}

void RowPass::groups(const BatchTile& batch_tile) const {
  Value* first = v_.entry(tables_.group_begin, v_.worker, "groups.begin");
  Value* last = v_.entry(tables_.group_begin, v_.plus(v_.worker, v_.constant(1)), "groups.end");
  v_.loop("group", first, last, [&](Value* number) {
    Value* only = v_.entry(tables_.groups, v_.times(number, kGroupFields), "first_item");
    Value* parts = v_.entry(tables_.items, v_.plus(v_.times(only, kItemFields), v_.constant(4)), "parts");
    Value* whole = ir_.CreateICmpEQ(parts, v_.constant(1), "whole");
    v_.branch("part", ir_.CreateNot(whole), [&] { item(batch_tile, only); });
    v_.branch("rows", whole, [&] { group(batch_tile, number); });
  });
}

void RowPass::group(const BatchTile& batch_tile, Value* number) const {
  const auto field = [&](std::int32_t index, const char* label) {
    return v_.entry(tables_.groups, v_.plus(v_.times(number, kGroupFields), v_.constant(index)), label);
  };
  Value* first_item = field(0, "first_item");
  Value* count = field(1, "items");
  Value* first = field(2, "first");
  v_.loop("clear", v_.constant(0), count, [&](Value* slot) { clear(group_sums_of(slot)); });
  accumulate_group(batch_tile, first, v_.plus(first, field(3, "count")));
  v_.loop("stored", v_.constant(0), count, [&](Value* slot) {
    Value* sums = group_sums_of(slot);
    Value* output = v_.entry(tables_.items, v_.times(v_.plus(first_item, slot), kItemFields), "output");
    store_outputs({batch_tile, output, sums});
  });
}

RowPass::Value* RowPass::group_sums_of(Value* slot) const {
  return v_.settled(v_.at(group_sums_, v_.times(slot, g_.sums_bytes)));
}

RowPass::Value* RowPass::stack(std::int64_t bytes, const char* name) const {
  auto* memory = ir_.CreateAlloca(llvm::ArrayType::get(ir_.getInt8Ty(), static_cast<std::uint64_t>(bytes)),
                                  nullptr, name);
  memory->setAlignment(llvm::Align(64));
  return memory;
}

void RowPass::for_each_chunk(Value* first, Value* steps,
                             const std::function<void(Value*, Value*, Value*)>& body) const {
  Value* chunks = ir_.CreateSDiv(v_.plus(steps, v_.constant(g_.chunk - 1)), v_.constant(g_.chunk), "chunks");
  Value* at_least_one = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, chunks, v_.constant(1));
  Value* length = ir_.CreateSDiv(ir_.CreateSub(v_.plus(steps, at_least_one), v_.constant(1)), at_least_one);
  Value* last = v_.plus(first, steps);
  v_.loop("chunk", v_.constant(0), chunks, [&](Value* number) {
    Value* begin = v_.plus(first, ir_.CreateMul(number, length));
    Value* end = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v_.plus(begin, length), last);
    body(begin, end, length);
  });
}

void RowPass::for_each_weight(Value* sums, const std::function<void(Value*, Value*)>& body) const {
  for (std::size_t weight = 0; weight < weights_.size(); ++weight)
    body(weights_[weight], v_.at(sums, static_cast<std::int64_t>(weight) * g_.weight_sums_bytes()));
}

void RowPass::clear(Value* sums) const {
  const std::int32_t lanes = g_.small_batch ? std::min(8, lanes_) : lanes_;
  v_.loop("clear", v_.constant(0), v_.constant(g_.sums_bytes / (4 * lanes)), [&](Value* i) {
    v_.store(llvm::Constant::getNullValue(v_.floats(lanes)),
             v_.at(sums, v_.times(i, std::int64_t{4} * lanes)), 16);
  });
}

RowPass::Value* RowPass::present_batch_rows(const BatchTile& batch_tile) const {
  Value* all = g_.correlation ? image_points(v_, g_) : n_;
  return ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, ir_.CreateSub(all, batch_tile.first_batch_row),
                                   v_.constant(g_.tile_n));
}

void RowPass::for_each_entry(const BatchTile& batch_tile, Value* output_block,
                             const std::function<void(Value*, Value*)>& body) const {
  if (g_.correlation)
    return for_each_point(batch_tile, batch_tile.images, residues_of_block(output_block), body);
  v_.loop("batch_row", v_.constant(0), present_batch_rows(batch_tile),
          [&](Value* batch_row) { body(batch_row, v_.plus(batch_tile.first_batch_row, batch_row)); });
}

std::array<RowPass::Value*, 3> RowPass::residues_of_block(Value* output_block) const {
  return residues_of(v_, ir_.CreateUDiv(output_block, layout_.number(LayoutNumber::out_blocks)),
                     *g_.correlation);
}

void RowPass::for_each_run(const BatchTile& batch_tile, Value* output_block,
                           const std::function<void(Value*, Value*, Value*)>& body) const {
  const Correlation& of = *g_.correlation;
  const ImageExtents extents(v_, of);
  const auto residues = residues_of_block(output_block);
  if (of.out_step[2] != 1)
    return for_each_point(batch_tile, {v_.constant(0)}, residues,
                          [&](Value* number, Value* position) { body(number, position, v_.constant(1)); });
  Value* first_point = batch_tile.first_batch_row;
  Value* end = v_.plus(first_point, present_batch_rows(batch_tile));
  Value* pitch = v_.constant(of.pitch[2]);
  Value* first_line = ir_.CreateUDiv(first_point, pitch);
  Value* last_line = ir_.CreateUDiv(ir_.CreateSub(end, v_.constant(1)), pitch);
  v_.loop("line", first_line, v_.plus(last_line, v_.constant(1)), [&](Value* line) {
    Value* start = v_.times(line, of.pitch[2]);
    Value* first =
        ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, ir_.CreateSub(first_point, start), v_.constant(0));
    Value* stop = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, ir_.CreateSub(end, start),
                                            extents.points(2));  // out_step is 1: all of output's
    const std::array point{ir_.CreateUDiv(line, v_.constant(of.pitch[1])),
                           ir_.CreateURem(line, v_.constant(of.pitch[1]))};
    Value* exists = ir_.CreateICmpSLT(first, stop);
    Value* position = v_.constant(0);
    for (std::size_t i = 0; i < 2; ++i) {
      Value* at = v_.plus(v_.times(point[i], of.out_step[i]), residues[i]);
      exists = ir_.CreateAnd(exists, ir_.CreateICmpSLT(point[i], extents.points(i)));
      exists = ir_.CreateAnd(exists, ir_.CreateICmpSLT(at, extents.output(i)));
      position = v_.plus(ir_.CreateMul(position, extents.output(i)), at);
    }
    v_.branch("exists", exists, [&] {
      body(ir_.CreateSub(v_.plus(start, first), first_point),
           v_.plus(ir_.CreateMul(position, extents.output(2)), first), ir_.CreateSub(stop, first));
    });
  });
}

void RowPass::for_each_point(const BatchTile& batch_tile, const Images& images,
                             const std::array<Value*, 3>& residues,
                             const std::function<void(Value*, Value*)>& body) const {
  v_.loop("point", v_.constant(0), present_batch_rows(batch_tile), [&](Value* number) {
    Value* point = v_.plus(batch_tile.first_batch_row, number);
    const RowOfPoint of = row_of_y(v_, images, residues, point, *g_.correlation);
    v_.branch("exists", of.present, [&] { body(number, of.row); });
  });
}

void RowPass::item(const BatchTile& batch_tile, Value* number) const {
  const auto field = [&](std::int32_t index, const char* label) {
    return v_.entry(tables_.items, v_.plus(v_.times(number, kItemFields), v_.constant(index)), label);
  };
  Value* output = field(0, "output");
  Value* first = field(1, "first_step");
  Value* steps = field(2, "steps");
  const CompleteRow row{batch_tile, output, item_sums_};
  if (layout_.known(LayoutNumber::counters) == 0) {
    accumulate({batch_tile, first, steps, item_sums_});
    store_outputs(row);
    return;
  }
  Value* part = field(3, "part");
  Value* parts = field(4, "parts");
  Value* partial = field(5, "partial");
  Value* counter = field(6, "counter");
  Value* whole = ir_.CreateICmpEQ(parts, v_.constant(1), "whole");
  Value* slot = v_.at(workspace_.partials, v_.times(v_.plus(partial, part), g_.sums_bytes));
  Value* sums = ir_.CreateSelect(whole, item_sums_, slot, "sums_of_part");
  accumulate({batch_tile, first, steps, sums});
  v_.branch("whole.store", whole, [&] { store_outputs(row); });
  v_.branch("part.arrive", ir_.CreateNot(whole), [&] {
    Value* address = v_.at(workspace_.counters, v_.times(counter, 4));
    Value* arrived = ir_.CreateAtomicRMW(llvm::AtomicRMWInst::Add, address, ir_.getInt32(1), llvm::Align(4),
                                         llvm::AtomicOrdering::AcquireRelease);
    Value* last =
        ir_.CreateICmpEQ(ir_.CreateZExt(ir_.CreateAdd(arrived, ir_.getInt32(1)), ir_.getInt64Ty()), parts);
    v_.branch("last.combine", last, [&] {
      v_.store(ir_.getInt32(0), address, 4);
      combine(parts, v_.at(workspace_.partials, v_.times(partial, g_.sums_bytes)));
      store_outputs(row);
    });
  });
}

void RowPass::combine(Value* parts, Value* first_partial) const {
  const std::int32_t lanes =
      std::min(8, lanes_);  // the fewest sums are those of one batch row and eight outputs
  const std::int64_t vector_bytes = std::int64_t{4} * lanes;
  v_.loop("combine", v_.constant(0), v_.constant(g_.sums_bytes / vector_bytes), [&](Value* i) {
    Value* bytes = v_.times(i, vector_bytes);
    auto* type = v_.floats(lanes);
    Value* sum = v_.load(type, v_.at(first_partial, bytes), 16);
    sum = v_.loop("part", v_.constant(1), parts, {sum}, [&](Value* part, const Values& sums) -> Values {
      Value* from = v_.at(v_.at(first_partial, v_.times(part, g_.sums_bytes)), bytes);
      return {ir_.CreateFAdd(sums[0], v_.load(type, from, 16))};
    })[0];
    v_.store(sum, v_.at(item_sums_, bytes), 16);
  });
}

}  // namespace sparsekiln::cpu
