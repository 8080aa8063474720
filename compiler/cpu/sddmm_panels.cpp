#include "compiler/cpu/sddmm_panels.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <llvm/IR/Intrinsics.h>

#include "compiler/cpu/activation_ir.h"
#include "compiler/cpu/call.h"

namespace sparsekiln::cpu {
namespace {

/// Features that are packed before the next batch rows are read: neighbouring lines of a row, which
/// processors fetch in pairs, and the panels of small blocks side by side.
constexpr std::int32_t kStretch = 64;

}  // namespace

llvm::Value* pair_count(VectorIr& v) {
  llvm::Value* count = v.load(
      v.ir.getInt32Ty(),
      v.at(v.call, static_cast<std::int64_t>(offsetof(Call, pairs) + offsetof(LaunchPairs, count))), 4);
  return v.ir.CreateSExt(count, v.ir.getInt64Ty(), "pairs");
}

PanelSource::PanelSource(VectorIr& v, const SddmmGeometry& geometry, const LayoutIr& layout,
                         const PanelSide& side)
    : v_(v), g_(geometry), side_(side) {
  auto* i64 = v_.ir.getInt64Ty();
  const auto element = static_cast<std::int64_t>(size_of(g_.dtype));
  const auto stride = [&](std::size_t offset) {
    return v_.times(v_.argument(i64, offset, "stride"), element);
  };
  if (g_.sums_block_scales_of_taps) before_panels_ = layout.number(LayoutNumber::tile_bytes);
  if (side_.cut) features_ = layout.number(side_.features());
  x_row_bytes_ = v_.times(layout.number(g_.x.panels()), g_.x.row_bytes());
  dy_row_bytes_ = v_.times(layout.number(g_.dy.panels()), g_.dy.row_bytes());
  n_ = v_.argument(i64, offsetof(Call, n), "n");
  stride_bytes_ = stride(side_.of_dy ? offsetof(Call, y_stride) : offsetof(Call, x_stride));
  z_stride_bytes_ = stride(offsetof(Call, z_stride));
  if (!derives()) return;
  auto* scratch = v_.ir.CreateAlloca(llvm::ArrayType::get(v_.ir.getInt8Ty(), 64), nullptr, "rounded");
  scratch->setAlignment(llvm::Align(64));
  rounded_ = scratch;
}

PanelSource::Value* PanelSource::base(Value* pair, std::size_t member) {
  Value* pairs = v_.at(v_.call, static_cast<std::int64_t>(offsetof(Call, pairs)));
  Value* of_pair = v_.at(pairs, v_.times(pair, sizeof(LaunchPairs::Pair)));
  return v_.load(v_.ir.getPtrTy(), v_.at(of_pair, static_cast<std::int64_t>(member)), 8, "operand");
}

PanelSource::Value* PanelSource::packed(Value* pair) {
  Value* workspace = v_.argument(v_.ir.getPtrTy(), offsetof(Call, workspace), "workspace");
  Value* x_bytes = v_.ir.CreateMul(x_row_bytes_, rows_of_entry(SddmmSide::x));
  Value* dy_bytes = v_.ir.CreateMul(dy_row_bytes_, rows_of_entry(SddmmSide::dy));
  Value* bytes = v_.ir.CreateMul(v_.ir.CreateMul(pair, n_), v_.plus(x_bytes, dy_bytes));
  if (side_.side == SddmmSide::dy) bytes = v_.plus(bytes, v_.ir.CreateMul(n_, x_bytes));
  if (before_panels_ != nullptr) bytes = v_.plus(bytes, before_panels_);
  return v_.at(workspace, bytes);
}

PanelSource::Value* PanelSource::rows_of_entry(SddmmSide side) const {
  if (!g_.correlation || side == SddmmSide::x) return v_.constant(g_.rows_of_entry(side));
  return ImageExtents(v_, *g_.correlation).output_positions();
}

PanelSource::Operand PanelSource::operand(Value* pair) {
  if (!side_.of_dy) return {base(pair, offsetof(LaunchPairs::Pair, x)), nullptr};
  return {base(pair, offsetof(LaunchPairs::Pair, dy)),
          derives() ? base(pair, offsetof(LaunchPairs::Pair, z)) : nullptr};
}

PanelSource::Operand PanelSource::at(const Operand& from, Value* batch_row, Value* feature) {
  const auto element = static_cast<std::int64_t>(size_of(g_.dtype));
  if (g_.channels_first) {
    Value* image = v_.ir.CreateUDiv(batch_row, positions());
    Value* position = v_.ir.CreateURem(batch_row, positions());
    Value* offset = v_.times(v_.plus(v_.ir.CreateMul(feature, positions()), position), element);
    const auto of_image = [&](Value* base, Value* stride_bytes) {
      return v_.settled(v_.at(v_.at(base, v_.ir.CreateMul(image, stride_bytes)), offset));
    };
    return {of_image(from.dy_or_x, stride_bytes_),
            from.z == nullptr ? nullptr : of_image(from.z, z_stride_bytes_)};
  }
  Value* row = feature_major() ? feature : batch_row;
  Value* column = v_.times(feature_major() ? batch_row : feature, element);
  const auto moved = [&](Value* base, Value* stride_bytes) {
    return v_.settled(v_.at(v_.at(base, v_.ir.CreateMul(row, stride_bytes)), column));
  };
  return {moved(from.dy_or_x, stride_bytes_), from.z == nullptr ? nullptr : moved(from.z, z_stride_bytes_)};
}

PanelSource::Value* PanelSource::loaded(const Operand& from, std::int32_t first, std::int32_t lanes) {
  const auto element = static_cast<std::int32_t>(size_of(g_.dtype));
  // Feature-major, vectors begin where chunks do. Single elements may be at any address.
  const std::int32_t of_chunk = feature_major() && !g_.packed ? g_.chunk & -g_.chunk : lanes;
  const auto align = static_cast<unsigned>(
      lanes == 1 || g_.channels_first ? element
                                      : std::min({16, g_.alignment, element * lanes, element * of_chunk}));
  const auto load = [&](Value* base) {
    return v_.load_floats(g_.dtype, v_.at(base, std::int64_t{element} * first), lanes, align);
  };
  Value* value = load(from.dy_or_x);
  if (from.z == nullptr) return value;
  value = v_.ir.CreateFMul(value, derivative(v_, g_.derivative, load(from.z)));
  if (g_.dtype == DType::f32) return value;
  v_.store(v_.rounded_to(g_.dtype, value), rounded_, static_cast<unsigned>(lanes == 1 ? element : 16));
  return v_.load_floats(g_.dtype, rounded_, lanes, static_cast<unsigned>(lanes == 1 ? element : 16));
}

void PanelSource::gather(Value* pair, Value* first_panel, Value* last_panel, Value* begin, Value* end,
                         Value* to, Value* panel_bytes) {
  const Operand from = operand(pair);
  if (g_.channels_first) return gather_images(from, first_panel, last_panel, begin, end, to, panel_bytes);
  const auto rows_of = [&](Value* panel, Value* first, Value* last, Value* target) {
    if (feature_major()) return gather_columns(from, panel, first, last, target);
    gather_rows(from, panel, first, last, target);
  };
  const auto panels = [&](Value* first, Value* last, Value* target) {
    v_.loop("panel", first_panel, last_panel, [&](Value* panel) {
      rows_of(panel, first, last,
              v_.settled(v_.at(target, v_.ir.CreateMul(v_.ir.CreateSub(panel, first_panel), panel_bytes))));
    });
  };
  if (feature_major()) return panels(begin, end, to);
  // All panels of a batch row come before those of the next: they are adjacent in memory.
  v_.loop("gather", begin, end, [&](Value* batch_row) {
    Value* target = v_.at(to, v_.times(v_.ir.CreateSub(batch_row, begin), side_.row_bytes()));
    const auto from_row = [&](Value* row) { panels(row, v_.plus(row, v_.constant(1)), target); };
    if (!displaced()) return from_row(batch_row);
    at_point(batch_row, from_row, [&] {
      v_.loop("panel", first_panel, last_panel, [&](Value* panel) {
        clear_rows(v_.constant(1),
                   v_.at(target, v_.ir.CreateMul(v_.ir.CreateSub(panel, first_panel), panel_bytes)));
      });
    });
  });
}

RowOfPoint PanelSource::point_at(Value* panel_row) {
  if (!displaced()) return {panel_row, v_.ir.getTrue()};
  const Correlation& lattice = *g_.correlation;
  Value* points = v_.constant(lattice.image_points());
  Value* of_phase = v_.constant(lattice.image_phase_points());
  Value* within = v_.ir.CreateURem(panel_row, points);
  return row_of_point(v_, {v_.ir.CreateUDiv(panel_row, points)}, v_.ir.CreateUDiv(within, of_phase),
                      v_.ir.CreateURem(within, of_phase), lattice);
}

void PanelSource::gather_images(const Operand& from, Value* first_panel, Value* last_panel, Value* begin,
                                Value* end, Value* to, Value* panel_bytes) {
  auto& ir = v_.ir;
  const std::int32_t side = std::min(8, v_.level.lanes);
  Value* count = ir.CreateSub(end, begin);
  Value* groups = ir.CreateUDiv(v_.plus(count, v_.constant(side - 1)), v_.constant(side));
  const auto panels = [&](Value* target, const std::function<void(Value*, Value*)>& body) {
    v_.loop("panel", first_panel, last_panel, [&](Value* panel) {
      body(panel, v_.settled(v_.at(target, ir.CreateMul(ir.CreateSub(panel, first_panel), panel_bytes))));
    });
  };
  v_.loop("rows", v_.constant(0), groups, [&](Value* group) {
    Value* offset = v_.times(group, side);
    Value* first = v_.plus(begin, offset);
    Value* target = v_.at(to, v_.times(offset, side_.row_bytes()));
    std::vector<RowOfPoint> points;
    for (std::int32_t r = 0; r < side; ++r) {
      points.push_back(point_at(v_.plus(first, v_.constant(r))));
    }
    Value* from_row = points.front().row;
    const auto image_of = [&](const RowOfPoint& point) { return ir.CreateUDiv(point.row, positions()); };
    Value* neighbours = ir.CreateAnd(are_neighbours(v_, points),
                                     ir.CreateICmpEQ(image_of(points.front()), image_of(points.back())));
    neighbours = ir.CreateAnd(neighbours, ir.CreateICmpSLE(v_.plus(first, v_.constant(side)), end));
    v_.branch("neighbours", neighbours, [&] {
      panels(target,
             [&](Value* panel, Value* of_panel) { transpose_points(from, panel, from_row, of_panel); });
    });
    v_.branch("apart", ir.CreateNot(neighbours), [&] {
      Value* stop = ir.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v_.plus(first, v_.constant(side)), end);
      v_.loop("row", first, stop, [&](Value* panel_row) {
        Value* row_target = v_.at(target, v_.times(ir.CreateSub(panel_row, first), side_.row_bytes()));
        at_point(
            panel_row,
            [&](Value* row) {
              panels(row_target,
                     [&](Value* panel, Value* of_panel) { gather_point(from, panel, row, of_panel); });
            },
            [&] {
              panels(row_target, [&](Value*, Value* of_panel) { clear_rows(v_.constant(1), of_panel); });
            });
      });
    });
  });
}

/// As many rows as a square has, from `row` on.
void PanelSource::transpose_points(const Operand& from, Value* panel, Value* row, Value* to) {
  const std::int32_t side = std::min(8, v_.level.lanes);
  const auto squares = [&] {
    v_.loop("square", v_.constant(0), v_.constant(side_.width / side), [&](Value* square) {
      Value* feature = v_.times(square, side);
      Value* first = v_.plus(v_.times(panel, side_.width), feature);
      VectorIr::Values rows;
      for (std::int32_t r = 0; r < side; ++r)
        rows.push_back(loaded(at(from, row, v_.plus(first, v_.constant(r))), 0, side));
      rows = v_.transpose(rows);
      Value* target = v_.settled(v_.at(to, v_.times(feature, 4)));
      for (std::int32_t r = 0; r < side; ++r)
        v_.store(rows[static_cast<std::size_t>(r)], v_.at(target, r * side_.row_bytes()), 16);
    });
  };
  by_extent(panel, squares, [&](Value*) {
    v_.loop("row", v_.constant(0), v_.constant(side), [&](Value* number) {
      gather_point(from, panel, v_.plus(row, number), v_.at(to, v_.times(number, side_.row_bytes())));
    });
  });
}

/// The features of one row, one by one; zeros for those that are missing.
void PanelSource::gather_point(const Operand& from, Value* panel, Value* row, Value* to) {
  Value* first = v_.times(panel, side_.width);
  const auto copy = [&](Value* features) {
    v_.loop("feature", v_.constant(0), features, [&](Value* feature) {
      copy_one(from, row, v_.plus(first, feature), v_.at(to, v_.times(feature, 4)));
    });
  };
  by_extent(
      panel, [&] { copy(v_.constant(side_.width)); },
      [&](Value* features) {
        clear_rows(v_.constant(1), to);
        copy(features);
      });
}

void PanelSource::at_point(Value* panel_row, const std::function<void(Value*)>& body,
                           const std::function<void()>& outside) {
  const RowOfPoint of = point_at(panel_row);
  v_.branch("inside", of.present, [&] { body(of.row); });
  v_.branch("outside", v_.ir.CreateNot(of.present), outside);
}

PanelSource::Value* PanelSource::row(Value* pair, Value* panel, Value* batch_row, Value* to) {
  const bool in_place =
      g_.dtype == DType::f32 && !feature_major() && !derives() && !side_.cut && g_.alignment >= 16;
  if (in_place) return at(operand(pair), batch_row, v_.times(panel, side_.width)).dy_or_x;
  const auto gather_one = feature_major() ? &PanelSource::gather_columns : &PanelSource::gather_rows;
  (this->*gather_one)(operand(pair), panel, batch_row, v_.plus(batch_row, v_.constant(1)), to);
  return to;
}

std::function<PanelSource::Value*(std::int64_t)> PanelSource::row_reader(Value* pair, Value* panel,
                                                                         Value* batch_row, Value* to) {
  const std::int32_t lanes = std::min(v_.level.lanes, side_.width);
  if (!feature_major() && !side_.cut) {
    const Operand from = at(operand(pair), batch_row, v_.times(panel, side_.width));
    return
        [=, this](std::int64_t feature) { return loaded(from, static_cast<std::int32_t>(feature), lanes); };
  }
  Value* from = row(pair, panel, batch_row, to);
  return [=, this](std::int64_t feature) {
    return v_.load(v_.floats(lanes), v_.at(from, std::int64_t{4} * feature), 16);
  };
}

void PanelSource::by_extent(Value* panel, const std::function<void()>& whole,
                            const std::function<void(Value*)>& cut) {
  if (!side_.cut) return whole();
  auto& ir = v_.ir;
  Value* left = ir.CreateSub(features_, v_.times(panel, side_.width));
  Value* fits = ir.CreateICmpSGE(left, v_.constant(side_.width));
  v_.branch("whole_panel", fits, whole);
  v_.branch("cut_panel", ir.CreateNot(fits),
            [&] { cut(ir.CreateBinaryIntrinsic(llvm::Intrinsic::smax, left, v_.constant(0))); });
}

void PanelSource::clear_rows(Value* batch_rows, Value* to) {
  const std::int32_t lanes = std::min(v_.level.lanes, side_.width);
  v_.loop("clear", v_.constant(0), batch_rows, [&](Value* batch_row) {
    Value* row = v_.at(to, v_.times(batch_row, side_.row_bytes()));
    for (std::int32_t at = 0; at < side_.width; at += lanes)
      v_.store(llvm::Constant::getNullValue(v_.floats(lanes)), v_.at(row, std::int64_t{4} * at), 16);
  });
}

void PanelSource::copy_one(const Operand& from, Value* batch_row, Value* feature, Value* to) {
  v_.store(loaded(at(from, batch_row, feature), 0, 1), to, 4);
}

/// One batch row, `begin`, of batch-major activations.
void PanelSource::gather_rows(const Operand& from, Value* panel, Value* begin, Value*, Value* to) {
  const std::int32_t lanes = std::min(v_.level.lanes, side_.width);
  Value* first = v_.times(panel, side_.width);
  by_extent(
      panel,
      [&] {
        const Operand row = at(from, begin, first);
        for (std::int32_t feature = 0; feature < side_.width; feature += lanes)
          v_.store(loaded(row, feature, lanes), v_.at(to, std::int64_t{4} * feature), 16);
      },
      [&](Value* features) {
        clear_rows(v_.constant(1), to);
        v_.loop("feature", v_.constant(0), features, [&](Value* feature) {
          copy_one(from, begin, v_.plus(first, feature), v_.at(to, v_.times(feature, 4)));
        });
      });
}

/// Feature-major: squares are transposed, what is left is copied one by one.
void PanelSource::gather_columns(const Operand& from, Value* panel, Value* begin, Value* end, Value* to) {
  auto& ir = v_.ir;
  const std::int32_t side = std::min(8, v_.level.lanes);
  Value* first = v_.times(panel, side_.width);
  Value* count = ir.CreateSub(end, begin);
  const auto one_by_one = [&](Value* features, Value* first_batch_row) {
    v_.loop("feature", v_.constant(0), features, [&](Value* feature) {
      v_.loop("batch_row", first_batch_row, count, [&](Value* batch_row) {
        Value* target = v_.plus(v_.times(batch_row, side_.row_bytes()), v_.times(feature, 4));
        copy_one(from, v_.plus(begin, batch_row), v_.plus(first, feature), v_.at(to, target));
      });
    });
  };
  by_extent(
      panel,
      [&] {
        Value* squares = ir.CreateSDiv(count, v_.constant(side));
        v_.loop("square", v_.constant(0), v_.constant(side_.width / side), [&](Value* square) {
          Value* feature = v_.times(square, side);
          v_.loop("batch_rows", v_.constant(0), squares, [&](Value* number) {
            Value* batch_row = v_.times(number, side);
            VectorIr::Values rows;
            for (std::int32_t r = 0; r < side; ++r)
              rows.push_back(loaded(
                  at(from, v_.plus(begin, batch_row), v_.plus(v_.plus(first, feature), v_.constant(r))), 0,
                  side));
            rows = v_.transpose(rows);
            Value* target =
                v_.settled(v_.at(to, v_.plus(v_.times(batch_row, side_.row_bytes()), v_.times(feature, 4))));
            for (std::int32_t r = 0; r < side; ++r)
              v_.store(rows[static_cast<std::size_t>(r)], v_.at(target, r * side_.row_bytes()), 16);
          });
        });
        one_by_one(v_.constant(side_.width), v_.times(squares, side));
      },
      [&](Value* features) {
        clear_rows(count, to);
        one_by_one(features, v_.constant(0));
      });
}

void emit_panel_pass(VectorIr& v, std::string_view name, const SddmmGeometry& g, const LayoutIr& layout) {
  v.begin_pass(name);
  auto& ir = v.ir;
  using Value = llvm::Value;
  Value* pairs = pair_count(v);
  PanelSource sources[] = {{v, g, layout, g.x}, {v, g, layout, g.dy}};
  Value* workers = layout.number(LayoutNumber::workers);
  for (PanelSource& source : sources) {
    const PanelSide* side = &source.side();
    const std::int32_t together = kStretch / side->width;
    Value* all_panels = layout.number(side->panels());
    Value* stretches = ir.CreateSDiv(v.plus(all_panels, v.constant(together - 1)), v.constant(together));
    // Workers share the batch rows of all pairs.
    Value* all = ir.CreateMul(pairs, stretches);
    Value* first = ir.CreateSDiv(ir.CreateMul(v.worker, all), workers);
    Value* last = ir.CreateSDiv(ir.CreateMul(v.plus(v.worker, v.constant(1)), all), workers);
    v.loop("stretch", first, last, [&](Value* stretch) {
      Value* pair = ir.CreateSDiv(stretch, stretches);
      Value* panel = v.times(ir.CreateSub(stretch, ir.CreateMul(pair, stretches)), together);
      Value* end =
          ir.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v.plus(panel, v.constant(together)), all_panels);
      Value* bytes = source.panel_bytes();
      source.gather(pair, panel, end, v.constant(0), source.rows(),
                    v.at(source.packed(pair), ir.CreateMul(panel, bytes)), bytes);
    });
  }
  v.end_pass();
}

}  // namespace sparsekiln::cpu
