#include <algorithm>
#include <cstddef>

#include "compiler/cpu/emit.h"
#include "compiler/cpu/passes.h"

namespace sparsekiln::cpu {
namespace {

/// Bytes of a batch entry that are packed before the next entries are looked at, so that every line of x that
/// is fetched is used up while it is in L1, though rows of x may all fall into the same cache set.
constexpr std::int64_t kStretchBytes = 256;

}  // namespace

TileWorkspace locate_workspace(VectorIr& ir, const Geometry& geometry) {
  llvm::Value* base = ir.argument(ir.ir.getPtrTy(), offsetof(Call, workspace), "workspace");
  llvm::Value* tile_offset = ir.plus(ir.times(ir.batch_tile, geometry.workspace.bytes_per_tile),
                                     ir.constant(geometry.workspace.counter_bytes));
  TileWorkspace result{};
  result.counters = ir.at(base, ir.times(ir.batch_tile, std::int64_t{4} * geometry.counters), "counters");
  result.panel = ir.at(base, tile_offset, "panel");
  result.partials = ir.at(result.panel, geometry.panel_bytes);
  return result;
}

void emit_pack_pass(VectorIr& v, std::string_view name, const Geometry& g) {
  // A square of tokens × words at a time; a block with four words in a row allows no wider one.
  const std::int32_t side = g.words % 8 == 0 ? std::min(8, v.level.lanes) : 4;
  v.begin_pass(name);
  auto& ir = v.ir;
  llvm::Value* x = v.argument(ir.getPtrTy(), offsetof(Call, x), "x");
  llvm::Value* n = v.argument(ir.getInt64Ty(), offsetof(Call, n), "n");
  const std::int64_t element_bytes = static_cast<std::int64_t>(size_of(g.dtype));
  llvm::Value* row_bytes =
      v.times(v.argument(ir.getInt64Ty(), offsetof(Call, x_stride), "x_stride"), element_bytes);
  llvm::Value* panel = locate_workspace(v, g).panel;
  llvm::Value* first_token = v.times(v.batch_tile, g.tile_n);
  llvm::Value* last_token = ir.CreateSub(n, v.constant(1), "last_token");

  const std::int64_t stretch_words = kStretchBytes / g.word_bytes;
  const std::int64_t stretches = (g.words + stretch_words - 1) / stretch_words;
  llvm::Value* begin = ir.CreateSDiv(v.times(v.worker, stretches), v.constant(g.workers));
  llvm::Value* end =
      ir.CreateSDiv(v.times(v.plus(v.worker, v.constant(1)), stretches), v.constant(g.workers));
  // Words of 32 bits are moved as they are.
  const DType moved = g.widens() ? g.dtype : DType::f32;
  const auto align = static_cast<unsigned>(std::min(16, side * g.word_bytes));
  v.loop("stretch", begin, end, [&](llvm::Value* stretch) {
    llvm::Value* word = v.times(stretch, stretch_words);
    llvm::Value* word_end = ir.CreateBinaryIntrinsic(
        llvm::Intrinsic::smin, v.plus(word, v.constant(stretch_words)), v.constant(g.words));
    v.loop("tokens", v.constant(0), v.constant(g.tile_n / side), [&](llvm::Value* group) {
      llvm::Value* token = v.times(group, side);
      VectorIr::Values rows;
      VectorIr::Values present;
      for (std::int32_t r = 0; r < side; ++r) {
        llvm::Value* wanted = v.plus(v.plus(first_token, token), v.constant(r));
        // Missing tokens read the last one, and the zeros are chosen after: no branch, nothing beyond x.
        llvm::Value* row = ir.CreateBinaryIntrinsic(llvm::Intrinsic::smin, wanted, last_token);
        rows.push_back(v.at(x, ir.CreateMul(row, row_bytes)));
        present.push_back(ir.CreateICmpSLE(wanted, last_token));
      }
      llvm::Value* squares = ir.CreateSDiv(ir.CreateSub(word_end, word), v.constant(side));
      v.loop("words", v.constant(0), squares, [&](llvm::Value* square) {
        llvm::Value* k = v.plus(word, v.times(square, side));
        VectorIr::Values values;
        for (std::size_t r = 0; r < rows.size(); ++r) {
          llvm::Value* from = v.at(rows[r], v.times(k, g.word_bytes));
          v.prefetch(v.beyond(from, kStretchBytes));
          llvm::Value* value = v.load_floats(moved, from, side, align);
          values.push_back(ir.CreateSelect(present[r], value, llvm::Constant::getNullValue(v.floats(side))));
        }
        llvm::Value* to = nullptr;
        std::int64_t pitch = g.tile_n;
        if (g.axis == Axis::output) {
          pitch = g.line_words();
          llvm::Value* line = ir.CreateSDiv(k, v.constant(pitch));
          llvm::Value* within = ir.CreateSub(k, v.times(line, pitch));
          to = v.plus(v.times(v.plus(v.times(line, g.tile_n), token), pitch), within);
        } else {
          values = v.transpose(values);
          to = v.plus(v.times(k, pitch), token);
        }
        to = v.at(panel, v.times(to, 4));
        for (std::int32_t r = 0; r < side; ++r)
          v.store(values[static_cast<std::size_t>(r)], v.at(to, 4 * r * pitch), 16);
      });
    });
  });
  v.end_pass();
}

}  // namespace sparsekiln::cpu
