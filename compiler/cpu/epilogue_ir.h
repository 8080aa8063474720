#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/cpu/cell_ir.h"
#include "compiler/cpu/passes.h"
#include "compiler/cpu/vector_ir.h"
#include "compiler/operand_table.h"

namespace sparsekiln::cpu {

/// What becomes of sums, and where they go (Epilogue in include/sparsekiln/problem.h has the formula):
/// vectors of neighbours in y, which are outputs, or where y is feature-major batch rows, and a rest one
/// by one.
class EpilogueIr {
 public:
  EpilogueIr(VectorIr& v, const Geometry& geometry, const LayoutIr& layout)
      : v_(v), ir_(v.ir), g_(geometry), layout_(layout) {
    if (geometry.cell) cell_.emplace(v, *geometry.cell);
  }

  /// Reads its part of the Call; called once, where a pass begins.
  void begin();

  /// Neighbours in y: [major][minor ...] with `stride` between majors, which are batch rows, or where y is
  /// feature-major features, and minors then positions of an image of a convolution.
  struct Run {
    llvm::Value* sums;     ///< address of those of W
    std::int64_t v_bytes;  ///< from there to those of V, and on to those of further weights
    llvm::Value* y;        ///< address of the first one
    llvm::Value* major;
    llvm::Value* minor;  ///< of the first one
    llvm::Value* count;
    llvm::Value* edges = nullptr;  ///< edges_of the batch row
    llvm::Value* image = nullptr;  ///< where y is channels-first; else null
  };
  void store(const Run& run) const;

  /// Where the edge gains and biases of a row of y begin, in elements; null where there are none.
  [[nodiscard]] llvm::Value* edges_of(llvm::Value* row) const;

  /// Outputs of block row `row` that exist.
  [[nodiscard]] llvm::Value* outputs_of(llvm::Value* row) const;
  /// The address of y[major][minor], or where y is channels-first y[image][major][minor].
  [[nodiscard]] llvm::Value* y_at(llvm::Value* major, llvm::Value* minor, llvm::Value* image = nullptr) const;
  /// Bytes from one y[major] to the one so many later.
  [[nodiscard]] llvm::Value* y_bytes(std::int64_t majors) const;

 private:
  using Value = llvm::Value;
  using Values = VectorIr::Values;

  void store_vector(const Run& run, Value* first, std::int32_t lanes) const;
  void store_cells(const Run& run, Value* first, std::int32_t lanes) const;
  /// The sums of a weight, of so many lanes from `first` on.
  [[nodiscard]] Value* sums(const Run& run, Value* first, std::int32_t lanes, std::int64_t weight) const;
  /// What it has for so many outputs from `first` on.
  [[nodiscard]] Value* operand(const OperandRow& row, const Run& run, Value* first, std::int32_t lanes) const;
  /// Reads where the operands of a form are that the epilogue takes.
  void locate(OperandForm form);
  /// The address of base[major][minor], or where `image` is not null base[image][major][minor]; `stride` is
  /// that of the first index.
  [[nodiscard]] Value* element(DType type, Value* base, Value* stride, Value* major, Value* minor,
                               Value* image) const;
  [[nodiscard]] unsigned align_of(DType type, std::int32_t lanes) const;

  VectorIr& v_;
  llvm::IRBuilder<>& ir_;
  const Geometry& g_;
  const LayoutIr& layout_;
  std::optional<CellIr> cell_;
  Value* y_ = nullptr;
  Value* y_stride_ = nullptr;
  Value* alpha_ = nullptr;
  Value* beta_ = nullptr;
  struct Located {
    const OperandRow* row;
    Value* address;
    Value* stride = nullptr;  ///< of an activation
  };
  std::vector<Located> operands_;
  Value* situations_ = nullptr;  ///< a table by runs; null: a situation has the number of its runs
};

}  // namespace sparsekiln::cpu
