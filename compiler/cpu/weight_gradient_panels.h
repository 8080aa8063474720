#pragma once

#include <string_view>

#include "compiler/cpu/vector_ir.h"
#include "compiler/cpu/weight_gradient_geometry.h"

namespace sparsekiln::cpu {

/// One operand of all pairs as it lies in memory, and its panels.
class PanelSource {
 public:
  using Value = llvm::Value;

  /// Reads the strides of the current pass's call.
  PanelSource(VectorIr& v, const GradientGeometry& geometry, const PanelSide& side);

  /// Writes the batch entries [begin, end) of pair `pair`'s panels [first_panel, last_panel), `panel_bytes`
  /// apart, to `to`, where batch entry `begin` of the first one begins.
  void gather(Value* pair, Value* first_panel, Value* last_panel, Value* begin, Value* end, Value* to,
              Value* panel_bytes);
  /// Bytes of a panel of a whole pair.
  [[nodiscard]] Value* panel_bytes() { return v_.times(n_, side_.row_bytes()); }
  /// Where in the workspace the panels of `pair` begin, of a packed geometry.
  [[nodiscard]] Value* packed(Value* pair);

  [[nodiscard]] const PanelSide& side() const { return side_; }

 private:
  /// The operand of a pair; `member` is an offset in LaunchPairs::Pair.
  [[nodiscard]] Value* base(Value* pair, std::size_t member);

  VectorIr& v_;
  const GradientGeometry& g_;
  const PanelSide& side_;
  Value* n_;
  Value* stride_bytes_;  ///< from one row of the operand to the next
};

/// Pass 0 of a packed geometry: all panels of x and dy, which the workers share.
void emit_panel_pass(VectorIr& v, std::string_view name, const GradientGeometry& geometry);

/// The number of pairs of the current pass's call.
[[nodiscard]] llvm::Value* pair_count(VectorIr& v);

}  // namespace sparsekiln::cpu
