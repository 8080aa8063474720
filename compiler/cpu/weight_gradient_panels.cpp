#include "compiler/cpu/weight_gradient_panels.h"

#include <algorithm>
#include <cstddef>

#include <llvm/IR/Intrinsics.h>

#include "compiler/cpu/emit.h"

namespace sparsekiln::cpu {
namespace {

/// Features that are packed before the next batch entries are looked at: neighbouring lines of a row, which
/// processors fetch in pairs, and the panels of small blocks side by side.
constexpr std::int32_t kStretch = 64;

}  // namespace

llvm::Value* pair_count(VectorIr& v) {
  llvm::Value* count = v.load(
      v.ir.getInt32Ty(),
      v.at(v.call, static_cast<std::int64_t>(offsetof(Call, pairs) + offsetof(LaunchPairs, count))), 4);
  return v.ir.CreateSExt(count, v.ir.getInt64Ty(), "pairs");
}

PanelSource::PanelSource(VectorIr& v, const GradientGeometry& geometry, const PanelSide& side)
    : v_(v), g_(geometry), side_(side) {
  auto* i64 = v_.ir.getInt64Ty();
  const bool of_x = side_.side == GradientSide::x;
  n_ = v_.argument(i64, offsetof(Call, n), "n");
  stride_bytes_ =
      v_.times(v_.argument(i64, of_x ? offsetof(Call, x_stride) : offsetof(Call, y_stride), "stride"),
               static_cast<std::int64_t>(size_of(g_.dtype)));
}

PanelSource::Value* PanelSource::base(Value* pair, std::size_t member) {
  Value* pairs = v_.at(v_.call, static_cast<std::int64_t>(offsetof(Call, pairs)));
  Value* of_pair = v_.at(pairs, v_.times(pair, sizeof(LaunchPairs::Pair)));
  return v_.load(v_.ir.getPtrTy(), v_.at(of_pair, static_cast<std::int64_t>(member)), 8, "operand");
}

PanelSource::Value* PanelSource::packed(Value* pair) {
  Value* workspace = v_.argument(v_.ir.getPtrTy(), offsetof(Call, workspace), "workspace");
  const std::int64_t x_row = g_.x.panels * g_.x.row_bytes();
  const std::int64_t dy_row = g_.dy.panels * g_.dy.row_bytes();
  Value* entries = v_.times(v_.ir.CreateMul(pair, n_), x_row + dy_row);
  if (side_.side == GradientSide::dy) entries = v_.plus(entries, v_.times(n_, x_row));
  return v_.at(workspace, entries);
}

void PanelSource::gather(Value* pair, Value* first_panel, Value* last_panel, Value* begin, Value* end,
                         Value* to, Value* panel_bytes) {
  auto& ir = v_.ir;
  const auto element = static_cast<std::int64_t>(size_of(g_.dtype));
  const std::int32_t lanes = std::min(v_.level.lanes, side_.width);
  const auto align = static_cast<unsigned>(std::min<std::int64_t>({16, g_.alignment, element * lanes}));
  Value* from = base(
      pair, side_.side == GradientSide::x ? offsetof(LaunchPairs::Pair, x) : offsetof(LaunchPairs::Pair, dy));
  v_.loop("gather", begin, end, [&](Value* entry) {
    Value* row = v_.at(from, ir.CreateMul(entry, stride_bytes_));
    Value* to_row = v_.at(to, v_.times(ir.CreateSub(entry, begin), side_.row_bytes()));
    v_.loop("panel", first_panel, last_panel, [&](Value* panel) {
      Value* source = v_.settled(v_.at(row, v_.times(panel, side_.width * element)));
      Value* target = v_.settled(v_.at(to_row, ir.CreateMul(ir.CreateSub(panel, first_panel), panel_bytes)));
      for (std::int32_t at = 0; at < side_.width; at += lanes)
        v_.store(v_.load_floats(g_.dtype, v_.at(source, at * element), lanes, align),
                 v_.at(target, std::int64_t{4} * at), 16);
    });
  });
}

void emit_panel_pass(VectorIr& v, std::string_view name, const GradientGeometry& g) {
  v.begin_pass(name);
  auto& ir = v.ir;
  using Value = llvm::Value;
  Value* pairs = pair_count(v);
  for (const PanelSide* side : {&g.x, &g.dy}) {
    PanelSource source(v, g, *side);
    Value* n = v.argument(ir.getInt64Ty(), offsetof(Call, n), "n");
    const std::int32_t together = kStretch / side->width;
    const std::int64_t stretches = (side->panels + together - 1) / together;
    // Of all pairs.
    Value* all = v.times(pairs, stretches);
    Value* first = ir.CreateSDiv(ir.CreateMul(v.worker, all), v.constant(g.workers));
    Value* last = ir.CreateSDiv(ir.CreateMul(v.plus(v.worker, v.constant(1)), all), v.constant(g.workers));
    v.loop("stretch", first, last, [&](Value* stretch) {
      Value* pair = ir.CreateSDiv(stretch, v.constant(stretches));
      Value* panel = v.times(ir.CreateSub(stretch, v.times(pair, stretches)), together);
      Value* behind = ir.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v.plus(panel, v.constant(together)),
                                               v.constant(side->panels));
      Value* bytes = source.panel_bytes();
      source.gather(pair, panel, behind, v.constant(0), n,
                    v.at(source.packed(pair), ir.CreateMul(panel, bytes)), bytes);
    });
  }
  v.end_pass();
}

}  // namespace sparsekiln::cpu
