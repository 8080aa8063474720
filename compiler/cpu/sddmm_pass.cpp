#include "compiler/cpu/sddmm_pass.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "compiler/cpu/call.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::int32_t kUnroll = 4;  ///< batch rows in one turn of the inner loop
constexpr std::int64_t kLine = 64;

}  // namespace

SddmmPass::SddmmPass(VectorIr& v, const SddmmGeometry& geometry, LayoutIr& layout)
    : v_(v), ir_(v.ir), g_(geometry), layout_(layout) {}

SddmmPass::Value* SddmmPass::holds(LayoutNumber number, bool of_use) {
  return of_use ? ir_.CreateICmpNE(layout_.number(number), v_.constant(0)) : ir_.getFalse();
}

void SddmmPass::emit(std::string_view name) {
  v_.begin_pass(name);
  sums_ = stack(std::int64_t{4} * g_.dy.width * g_.run_width(g_.run_blocks), "sums");
  if (!g_.packed) {
    own_dy_ = stack(std::max(g_.chunk, g_.dy.panels_of_block()) * g_.dy.row_bytes(), "own_dy");
    own_x_ = stack(g_.run_blocks * g_.chunk * g_.x.row_bytes(), "own_x");
  }
  if (g_.exact_products)
    multipliers_ = stack(word_tile().multiplier_bytes() * g_.block.out / word_tile().rows, "multipliers");
  tables_ = {layout_.table(kRunBegin),     layout_.table(kRuns),
             layout_.table(kBlockColumns), layout_.table(kStretches),
             layout_.table(kStretchBegin), g_.correlation ? layout_.table(kBlockPlaces) : nullptr};
  streams_ = holds(LayoutNumber::streams, g_.streams);
  streams_products_ = holds(LayoutNumber::streams_products, g_.streams_products);
  many_products_ = holds(LayoutNumber::many_products, g_.exact_products);
  dw_ = v_.argument(ir_.getPtrTy(), offsetof(Call, y), "dw");
  n_ = v_.argument(ir_.getInt64Ty(), offsetof(Call, n), "n");
  pairs_ = pair_count(v_);
  x_.emplace(v_, g_, layout_, g_.x);
  dy_.emplace(v_, g_, layout_, g_.dy);
  locate_ends();
  Value* first = v_.entry(tables_.worker_begin, v_.worker, "runs.begin");
  Value* end = v_.entry(tables_.worker_begin, v_.plus(v_.worker, v_.constant(1)), "runs.end");
  const auto for_each_run = [&](const auto& body) {
    v_.loop("run", first, end, [&](Value* number) {
      body(number);
      if (g_.bias_gradient && !g_.bias_of_columns()) bias_of_run(number);
    });
  };
  const auto sum_runs = [&] { for_each_run([&](Value* number) { run(number); }); };
  if (g_.packed) {
    sum_runs();
    if (g_.bias_gradient && g_.bias_of_columns()) sum_bias_of_columns();
  } else {
    Value* one = v_.constant(1);
    Value* single = ir_.CreateAnd(ir_.CreateICmpEQ(n_, one), ir_.CreateICmpEQ(pairs_, one), "single");
    v_.branch("outer_products", single, [&] {
      outer_products();
      if (g_.bias_gradient) for_each_run([](Value*) {});
    });
    v_.branch("sums", ir_.CreateNot(single), sum_runs);
  }
  // Threads that wait for this pass must see what was stored past the caches.
  v_.branch("streamed", ir_.CreateOr(streams_, streams_products_),
            [&] { ir_.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {}); });
  v_.end_pass();
}

SddmmPass::Value* SddmmPass::stack(std::int64_t bytes, const char* name) {
  auto* memory = ir_.CreateAlloca(llvm::ArrayType::get(ir_.getInt8Ty(), static_cast<std::uint64_t>(bytes)),
                                  nullptr, name);
  memory->setAlignment(llvm::Align(64));
  return memory;
}

void SddmmPass::run(Value* number) {
  Value* blocks = v_.entry(tables_.runs, v_.plus(v_.times(number, kRunFields), v_.constant(2)), "blocks");
  // Runs of each length have register tiles of their own.
  for (std::int32_t length = g_.run_blocks; length > 0; --length)
    v_.branch("length", ir_.CreateICmpEQ(blocks, v_.constant(length)), [&] { run_of(length, number); });
}

void SddmmPass::bias_of_run(Value* number) {
  Value* first =
      v_.entry(tables_.runs, v_.plus(v_.times(number, kRunFields), v_.constant(3)), "first_of_row");
  v_.branch("bias", ir_.CreateICmpNE(first, v_.constant(0)),
            [&] { sum_bias(v_.entry(tables_.runs, v_.times(number, kRunFields), "row")); });
}

void SddmmPass::run_of(std::int32_t blocks, Value* number) {
  Run run;
  run.number = number;
  run.blocks = blocks;
  run.row = v_.entry(tables_.runs, v_.times(number, kRunFields), "row");
  run.first = v_.entry(tables_.runs, v_.plus(v_.times(number, kRunFields), v_.constant(1)), "first_block");
  clear_block_scale_sums(blocks);
  v_.loop("dy_panel", v_.constant(0), v_.constant(g_.dy.panels_of_block()), [&](Value* dy_panel) {
    v_.loop("x_panel", v_.constant(0), v_.constant(g_.x.panels_of_block()), [&](Value* x_panel) {
      run.dy_panel = dy_panel;
      run.x_panel = x_panel;
      sum_chunks(run, needed_batch_rows(run));
    });
  });
  if (g_.block_scale_gradient) store_block_scale_gradients(run);
}

/// Pair by pair, chunk by chunk. Without pairs or batch rows there is one chunk without any: zeros are
/// stored.
void SddmmPass::sum_chunks(const Run& run, Value* batch_rows) {
  Value* one = v_.constant(1);
  Value* chunks = g_.correlation
                      ? ir_.CreateMul(batch_rows, image_chunks())
                      : ir_.CreateUDiv(v_.plus(batch_rows, v_.constant(g_.chunk - 1)), v_.constant(g_.chunk));
  chunks = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, one, chunks);
  Value* pairs = ir_.CreateSelect(ir_.CreateICmpEQ(batch_rows, v_.constant(0)), one, pairs_);
  Value* total = ir_.CreateMul(pairs, chunks);
  v_.loop("chunk", v_.constant(0), total, [&](Value* number) {
    const Chunk chunk = locate(run, number, chunks, total, batch_rows);
    for_each_tile(run.blocks, [&](const Tile& tile) { compute(run, chunk, tile); });
  });
}

SddmmPass::Chunk SddmmPass::locate(const Run& run, Value* number, Value* chunks, Value* total,
                                   Value* batch_rows) {
  Chunk chunk;
  chunk.pair = ir_.CreateUDiv(number, chunks, "pair");
  chunk.first = ir_.CreateICmpEQ(number, v_.constant(0), "first");
  chunk.last = ir_.CreateICmpEQ(v_.plus(number, v_.constant(1)), total, "last");
  if (g_.correlation) {
    locate_lines(run, ir_.CreateSub(number, ir_.CreateMul(chunk.pair, chunks)), batch_rows, chunk);
    return chunk;
  }
  chunk.begin = v_.times(ir_.CreateSub(number, ir_.CreateMul(chunk.pair, chunks)), g_.chunk);
  Value* end = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v_.plus(chunk.begin, v_.constant(g_.chunk)),
                                         batch_rows);
  chunk.count = ir_.CreateSub(end, chunk.begin, "batch_rows");

  Value* dy_panel = v_.plus(v_.times(run.row, g_.dy.panels_of_block()), run.dy_panel);
  const auto panels = [&](PanelSource& source, Value* panel, Value* own) {
    if (g_.packed)
      return v_.settled(
          v_.at(source.packed(chunk.pair), v_.plus(ir_.CreateMul(panel, source.panel_bytes()),
                                                   v_.times(chunk.begin, source.side().row_bytes()))));
    source.gather(chunk.pair, panel, v_.plus(panel, v_.constant(1)), chunk.begin, end, own, v_.constant(0));
    return own;
  };
  chunk.dy = panels(*dy_, dy_panel, own_dy_);
  for (std::int32_t block = 0; block < run.blocks; ++block) {
    Value* column = v_.entry(tables_.columns, v_.plus(run.first, v_.constant(block)), "column");
    Value* own = g_.packed ? nullptr : v_.at(own_x_, block * g_.chunk * g_.x.row_bytes());
    chunk.x.push_back(panels(*x_, v_.plus(v_.times(column, g_.x.panels_of_block()), run.x_panel), own));
  }
  if (g_.packed) locate_next(run, chunk);
  return chunk;
}

SddmmPass::Value* SddmmPass::image_lines() const {
  const ImageExtents extents(v_, *g_.correlation);
  return ir_.CreateMul(extents.points(0), extents.points(1));
}

SddmmPass::Value* SddmmPass::image_chunks() const {
  return ir_.CreateUDiv(v_.plus(image_lines(), v_.constant(g_.chunk_lines() - 1)),
                        v_.constant(g_.chunk_lines()));
}

/// Chunk `number` of a convolution's pair: lines of one image. There are none where there is no image.
void SddmmPass::locate_lines(const Run& run, Value* number, Value* images, Chunk& chunk) {
  Value* image = ir_.CreateUDiv(number, image_chunks(), "image");
  chunk.first_line = v_.times(ir_.CreateURem(number, image_chunks()), g_.chunk_lines());
  Value* end = ir_.CreateBinaryIntrinsic(
      llvm::Intrinsic::smin, v_.plus(chunk.first_line, v_.constant(g_.chunk_lines())), image_lines());
  chunk.count = ir_.CreateSelect(ir_.CreateICmpEQ(images, v_.constant(0)), v_.constant(0),
                                 ir_.CreateSub(end, chunk.first_line), "lines");
  const auto begin = [&](PanelSource& source, Value* panel, Value* row) {
    Value* rows = v_.plus(ir_.CreateMul(image, source.rows_of_entry(source.side().side)), row);
    return v_.settled(v_.at(source.packed(chunk.pair), v_.plus(ir_.CreateMul(panel, source.panel_bytes()),
                                                               v_.times(rows, source.side().row_bytes()))));
  };
  chunk.dy = begin(*dy_, v_.plus(v_.times(run.row, g_.dy.panels_of_block()), run.dy_panel), v_.constant(0));
  for (std::int32_t block = 0; block < run.blocks; ++block) {
    Value* column = v_.entry(tables_.columns, block_number(run, block), "column");
    chunk.x.push_back(begin(*x_, v_.plus(v_.times(column, g_.x.panels_of_block()), run.x_panel),
                            v_.entry(tables_.places, block_number(run, block), "place")));
  }
}

/// Line by line, with the sums in registers.
SddmmPass::Values SddmmPass::multiply_lines(const Chunk& chunk, const Tile& tile, std::int32_t blocks,
                                            Values sums) {
  const Correlation& lattice = *g_.correlation;
  const ImageExtents extents(v_, lattice);
  return v_.loop("line", v_.constant(0), chunk.count, std::move(sums), [&](Value* number, const Values& now) {
    Value* line = v_.plus(chunk.first_line, number);
    Value* plane = ir_.CreateUDiv(line, extents.points(1));
    Value* row = ir_.CreateURem(line, extents.points(1));
    Value* point = v_.times(v_.plus(v_.times(plane, lattice.pitch[1]), row), lattice.pitch[2]);
    Chunk of_line;
    of_line.count = extents.points(2);
    of_line.dy = v_.at(chunk.dy, v_.times(ir_.CreateMul(line, extents.points(2)), g_.dy.row_bytes()));
    for (Value* x : chunk.x) of_line.x.push_back(v_.at(x, v_.times(point, g_.x.row_bytes())));
    return multiply(of_line, tile, blocks, now);
  });
}

/// The next chunk of these panels, or the first one of the next run's.
void SddmmPass::locate_next(const Run& run, Chunk& chunk) {
  const auto field = [&](std::int32_t index, const char* label) {
    Value* next = v_.times(v_.plus(run.number, v_.constant(1)), kRunFields);
    return v_.entry(tables_.runs, v_.plus(next, v_.constant(index)), label);
  };
  const auto choose = [&](PanelSource& source, Value* now, Value* block) {
    Value* ahead = v_.beyond(now, g_.chunk * source.side().row_bytes());
    Value* panel = v_.times(block, source.side().panels_of_block());
    Value* other = v_.beyond(source.packed(v_.constant(0)), ir_.CreateMul(panel, source.panel_bytes()));
    return v_.settled(ir_.CreateSelect(chunk.last, other, ahead));
  };
  chunk.next_dy = choose(*dy_, chunk.dy, field(0, "next_row"));
  Value* first = field(1, "next_block");
  for (std::int32_t block = 0; block < run.blocks; ++block)
    chunk.next_x.push_back(
        choose(*x_, chunk.x[static_cast<std::size_t>(block)],
               v_.entry(tables_.columns, v_.plus(first, v_.constant(block)), "next_column")));
}

/// Calls `body` for every register tile: one loop for each stretch of equal tiles.
void SddmmPass::for_each_tile(std::int32_t blocks, const std::function<void(const Tile&)>& body) {
  const SddmmTile shape = g_.tile(blocks);
  const std::int32_t groups = g_.run_width(blocks) / (shape.vectors * g_.lanes);
  const auto groups_of = [&](Tile tile) {
    Value* first = v_.times(tile.number, groups);
    if (blocks == 1 && groups > 1) {
      v_.loop("group", v_.constant(0), v_.constant(groups), [&](Value* group) {
        tile.number = v_.plus(first, group);
        tile.feature = v_.times(group, shape.vectors * g_.lanes);
        body(tile);
      });
      return;
    }
    tile.feature = v_.constant(0);
    for (std::int32_t group = 0; group < groups; ++group) {
      tile.number = v_.plus(first, v_.constant(group));
      tile.first_vector = group * shape.vectors;
      body(tile);
    }
  };
  std::int64_t base = 0;
  for (std::size_t begin = 0; begin < shape.outputs.size();) {
    std::size_t end = begin;
    while (end < shape.outputs.size() && shape.outputs[end] == shape.outputs[begin]) ++end;
    const auto count = static_cast<std::int64_t>(end - begin);
    const std::int32_t outputs = shape.outputs[begin];
    v_.loop("tile", v_.constant(0), v_.constant(count), [&](Value* number) {
      Tile tile;
      tile.number = v_.plus(number, v_.constant(static_cast<std::int64_t>(begin)));
      tile.output = v_.plus(v_.constant(base), v_.times(number, outputs));
      tile.outputs = outputs;
      tile.vectors = shape.vectors;
      tile.streams = streams_;
      groups_of(tile);
    });
    base += count * outputs;
    begin = end;
  }
}

SddmmPass::Value* SddmmPass::sums_address(std::int32_t blocks, const Tile& tile, std::int32_t output,
                                          std::int32_t vector) {
  const std::int64_t width = g_.run_width(blocks);
  Value* element = v_.plus(v_.times(v_.plus(tile.output, v_.constant(output)), width), tile.feature);
  return v_.at(
      sums_, v_.times(v_.plus(element, v_.constant(std::int64_t{tile.first_vector + vector} * g_.lanes)), 4));
}

/// Sums go on where the chunk before left them, and are stored where none comes after.
void SddmmPass::compute(const Run& run, const Chunk& chunk, const Tile& tile) {
  auto* type = v_.floats(g_.lanes);
  const auto for_each_sum = [&](const std::function<void(Value*)>& body) {
    for (std::int32_t output = 0; output < tile.outputs; ++output)
      for (std::int32_t vector = 0; vector < tile.vectors; ++vector)
        body(sums_address(run.blocks, tile, output, vector));
  };
  const Values zeros(static_cast<std::size_t>(tile.outputs * tile.vectors),
                     llvm::Constant::getNullValue(type));
  v_.branch("ask", ir_.CreateAnd(chunk.last, ir_.CreateNot(streams_)), [&] { prefetch_tile(run, tile); });
  // No turn of this loop, or one.
  Values sums = v_.loop("resumed", ir_.CreateZExt(chunk.first, ir_.getInt64Ty()), v_.constant(1), zeros,
                        [&](Value*, const Values&) {
                          Values before;
                          for_each_sum([&](Value* address) { before.push_back(v_.load(type, address, 16)); });
                          return before;
                        });
  sums = g_.correlation ? multiply_lines(chunk, tile, run.blocks, std::move(sums))
                        : multiply(chunk, tile, run.blocks, std::move(sums));
  v_.branch("held", ir_.CreateNot(chunk.last), [&] {
    std::size_t next = 0;
    for_each_sum([&](Value* address) { v_.store(sums[next++], address, 16); });
  });
  v_.branch("whole", chunk.last, [&] { store_tile(run, tile, sums); });
}

/// A turn's share of the lines of the next panel that as many batch rows have, shared by the register
/// tiles.
void SddmmPass::prefetch_share(const PanelSide& side, Value* panel, Value* turn, const Tile& tile,
                               std::int32_t tiles) {
  const std::int64_t lines = kUnroll * side.row_bytes() / kLine;  // a power of two
  const std::int64_t each = (lines + tiles - 1) / tiles;
  Value* share = ir_.CreateAnd(v_.times(tile.number, each), v_.constant(lines - 1));
  Value* at = v_.beyond(panel, v_.plus(v_.times(turn, lines * kLine), v_.times(share, kLine)));
  for (std::int64_t line = 0; line < each; ++line) v_.prefetch(v_.beyond(at, line * kLine));
}

SddmmPass::Values SddmmPass::multiply(const Chunk& chunk, const Tile& tile, std::int32_t blocks,
                                      Values sums) {
  const SddmmTile shape = g_.tile(blocks);
  const std::int32_t tiles =
      static_cast<std::int32_t>(shape.outputs.size()) * g_.run_width(blocks) / (shape.vectors * g_.lanes);
  const std::size_t count = sums.size();
  Values carried = std::move(sums);
  carried.push_back(v_.settled(v_.at(chunk.dy, v_.times(tile.output, 4))));
  const std::int32_t first_block = block_of(tile, 0);
  const std::int32_t last_block = block_of(tile, tile.vectors - 1);
  for (std::int32_t block = first_block; block <= last_block; ++block)
    carried.push_back(v_.settled(v_.at(chunk.x[static_cast<std::size_t>(block)], v_.times(tile.feature, 4))));
  const auto turn = [&](std::int32_t batch_rows) {
    return [&, batch_rows](Value* number, const Values& now) {
      const auto after_sums = now.begin() + static_cast<std::ptrdiff_t>(count);
      Values next(now.begin(), after_sums);
      const Values addresses(after_sums, now.end());
      if (batch_rows == kUnroll && chunk.next_dy != nullptr) {
        prefetch_share(g_.dy, chunk.next_dy, number, tile, tiles);
        for (Value* panel : chunk.next_x) prefetch_share(g_.x, panel, number, tile, tiles);
      }
      for (std::int32_t batch_row = 0; batch_row < batch_rows; ++batch_row) {
        multiply_batch_row(addresses, batch_row, tile, next);
        next = v_.pinned(next);
      }
      for (std::size_t i = 0; i < addresses.size(); ++i)
        next.push_back(v_.at(addresses[i], batch_rows * (i == 0 ? g_.dy : g_.x).row_bytes()));
      return next;
    };
  };
  Value* turns = ir_.CreateUDiv(chunk.count, v_.constant(kUnroll));
  carried = v_.loop("batch_rows", v_.constant(0), turns, std::move(carried), turn(kUnroll));
  carried = v_.loop("batch_row", v_.times(turns, kUnroll), chunk.count, std::move(carried), turn(1));
  carried.resize(count);
  return carried;
}

void SddmmPass::multiply_batch_row(const Values& dy_and_x, std::int64_t batch_row, const Tile& tile,
                                   Values& sums) {
  const auto dy = [&](std::int32_t output) {
    Value* address = v_.at(dy_and_x[0], batch_row * g_.dy.row_bytes() + std::int64_t{4} * output);
    return v_.splat(v_.load(ir_.getFloatTy(), address, 4), g_.lanes);
  };
  const std::int32_t first_block = block_of(tile, 0);
  const auto x = [&](std::int32_t vector) {
    Value* base = dy_and_x[static_cast<std::size_t>(1 + block_of(tile, vector) - first_block)];
    return v_.load(v_.floats(g_.lanes),
                   v_.at(base, batch_row * g_.x.row_bytes() + 4 * feature_of(tile, vector)), 16);
  };
  const auto add = [&](std::int32_t output, std::int32_t vector, Value* dy_value, Value* x_value) {
    Value*& sum = sums[static_cast<std::size_t>(output * tile.vectors + vector)];
    sum = v_.multiply_add(x_value, dy_value, sum);
  };
  // The shorter side of the tile is held in registers, the longer one passes by.
  Values held;
  if (tile.vectors > tile.outputs) {
    for (std::int32_t output = 0; output < tile.outputs; ++output) held.push_back(dy(output));
    for (std::int32_t vector = 0; vector < tile.vectors; ++vector) {
      Value* value = x(vector);
      for (std::int32_t output = 0; output < tile.outputs; ++output)
        add(output, vector, held[static_cast<std::size_t>(output)], value);
    }
    return;
  }
  for (std::int32_t vector = 0; vector < tile.vectors; ++vector) held.push_back(x(vector));
  for (std::int32_t output = 0; output < tile.outputs; ++output) {
    Value* value = dy(output);
    for (std::int32_t vector = 0; vector < tile.vectors; ++vector)
      add(output, vector, value, held[static_cast<std::size_t>(vector)]);
  }
}

/// Stores would wait for the lines that they write to.
void SddmmPass::prefetch_tile(const Run& run, const Tile& tile) {
  Value* base = v_.settled(
      v_.at(dw_, v_.times(element_of(run, tile), static_cast<std::int64_t>(size_of(g_.out_dtype)))));
  std::int64_t next = 0;
  for (std::int32_t block = block_of(tile, 0); block <= block_of(tile, tile.vectors - 1); ++block)
    for (std::int32_t output = 0; output < tile.outputs; ++output)
      for (std::int32_t vector = 0; vector < tile.vectors; ++vector) {
        if (block_of(tile, vector) != block) continue;
        const std::int64_t at =
            static_cast<std::int64_t>(size_of(g_.out_dtype)) * vector_offset(tile, output, vector);
        if (at < next) continue;
        v_.prefetch(v_.at(base, at));
        next = at + kLine;
      }
}

}  // namespace sparsekiln::cpu
