#pragma once

#include <functional>
#include <string_view>

#include "compiler/cpu/lattice_ir.h"
#include "compiler/cpu/layout_ir.h"
#include "compiler/cpu/sddmm_geometry.h"
#include "compiler/cpu/vector_ir.h"

namespace sparsekiln::cpu {

/// One operand of all pairs in memory, and its panels.
class PanelSource {
 public:
  using Value = llvm::Value;

  /// Reads the strides of the current pass's call; to be made where a pass begins.
  PanelSource(VectorIr& v, const SddmmGeometry& geometry, const LayoutIr& layout, const PanelSide& side);

  /// Writes the batch rows [begin, end) of pair `pair`'s panels [first_panel, last_panel), `panel_bytes`
  /// apart, to `to`, where batch row `begin` of the first one begins.
  void gather(Value* pair, Value* first_panel, Value* last_panel, Value* begin, Value* end, Value* to,
              Value* panel_bytes);
  /// One batch row of a panel: in place if it is float32 already, else gathered to `to`.
  [[nodiscard]] Value* row(Value* pair, Value* panel, Value* batch_row, Value* to);
  /// Loads vectors of it, by their first feature, as float32; only what takes more than that is gathered.
  [[nodiscard]] std::function<Value*(std::int64_t)> row_reader(Value* pair, Value* panel, Value* batch_row,
                                                               Value* to);
  /// The address in memory of batch-major activations.
  [[nodiscard]] Value* address(Value* pair, Value* panel, Value* batch_row) {
    return at(operand(pair), batch_row, v_.times(panel, side_.width)).dy_or_x;
  }
  /// Bytes of a panel of a whole pair.
  [[nodiscard]] Value* panel_bytes() { return v_.times(rows(), side_.row_bytes()); }
  /// Rows of a panel of a whole pair.
  [[nodiscard]] Value* rows() { return v_.ir.CreateMul(n_, own_rows_of_entry()); }
  /// Rows of the panels of a side for one of the launch's batch.
  [[nodiscard]] Value* rows_of_entry(SddmmSide side) const;
  /// Where in the workspace the panels of `pair` begin, of a packed geometry.
  [[nodiscard]] Value* packed(Value* pair);

  [[nodiscard]] const PanelSide& side() const { return side_; }

 private:
  /// Addresses of an element.
  struct Operand {
    Value* dy_or_x = nullptr;
    Value* z = nullptr;  ///< null: no derivative
  };
  [[nodiscard]] Operand operand(Value* pair);
  [[nodiscard]] Value* base(Value* pair, std::size_t member);
  [[nodiscard]] bool feature_major() const { return g_.order == ActivationOrder::feature_major; }
  [[nodiscard]] bool derives() const { return side_.of_dy && g_.derivative != Activation::none; }
  /// Whether rows of its panels are points of a lattice.
  [[nodiscard]] bool displaced() const {
    return g_.correlation && side_.side == SddmmSide::x && !side_.in_place;
  }
  [[nodiscard]] Value* own_rows_of_entry() const {
    return side_.in_place ? positions() : rows_of_entry(side_.side);
  }
  [[nodiscard]] Operand at(const Operand& from, Value* batch_row, Value* feature);
  /// `lanes` contiguous elements, from element `first` after `from`, converted as the products take them.
  [[nodiscard]] Value* loaded(const Operand& from, std::int32_t first, std::int32_t lanes);
  /// Calls `whole` for a panel of a whole block and `cut` for one of a partial block, with its features.
  void by_extent(Value* panel, const std::function<void()>& whole, const std::function<void(Value*)>& cut);
  void gather_rows(const Operand& from, Value* panel, Value* begin, Value* end, Value* to);
  void gather_columns(const Operand& from, Value* panel, Value* begin, Value* end, Value* to);
  /// The rows of a convolution's panels, where activations are channels-first. Rows that are neighbours in an
  /// image are transposed in squares.
  void gather_images(const Operand& from, Value* first_panel, Value* last_panel, Value* begin, Value* end,
                     Value* to, Value* panel_bytes);
  void transpose_points(const Operand& from, Value* panel, Value* row, Value* to);
  void gather_point(const Operand& from, Value* panel, Value* row, Value* to);
  /// The row of the operand that a row of a panel has, and whether there is one.
  [[nodiscard]] RowOfPoint point_at(Value* panel_row);
  /// Positions of an image of the operand.
  [[nodiscard]] Value* positions() const {
    const ImageExtents extents(v_, *g_.correlation);
    return side_.side == SddmmSide::x ? extents.input_positions() : extents.output_positions();
  }
  void clear_rows(Value* batch_rows, Value* to);
  /// Calls `body` with the row of x that a row of a convolution's panel has, or `outside` where there is
  /// none.
  void at_point(Value* panel_row, const std::function<void(Value*)>& body,
                const std::function<void()>& outside);
  void copy_one(const Operand& from, Value* batch_row, Value* feature, Value* to);

  VectorIr& v_;
  const SddmmGeometry& g_;
  const PanelSide& side_;
  Value* features_ = nullptr;       ///< of the operand, where its last block is cut
  Value* before_panels_ = nullptr;  ///< bytes of the workspace; null: none
  Value* x_row_bytes_;              ///< of the panels of one batch row
  Value* dy_row_bytes_;
  Value* n_;
  Value* stride_bytes_;       ///< from one row of the operand to the next
  Value* z_stride_bytes_;     ///< bytes between rows of z
  Value* rounded_ = nullptr;  ///< a vector of the operands' type on the stack
};

/// Pass 0 of a packed geometry: all panels of x and dy, which the workers share.
void emit_panel_pass(VectorIr& v, std::string_view name, const SddmmGeometry& geometry,
                     const LayoutIr& layout);

/// The number of pairs of the current pass's call.
[[nodiscard]] llvm::Value* pair_count(VectorIr& v);

}  // namespace sparsekiln::cpu
