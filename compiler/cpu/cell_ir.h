#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include <sparsekiln/problem.h>

#include "compiler/cpu/cell_form.h"
#include "compiler/cpu/vector_ir.h"

namespace sparsekiln::cpu {

/// i, f, g and o of vectors of cells, with their activations.
using CellGates = std::array<llvm::Value*, 4>;
inline constexpr std::size_t kCandidate = 2;  ///< g, whose activation is tanh; that of others is sigmoid

struct CellState {
  llvm::Value* c;
  llvm::Value* h;
};
[[nodiscard]] CellState state_of_cell(VectorIr& v, const CellGates& gates, llvm::Value* c_before);

/// What the gradient of a cell takes of its state.
struct CellMemory {
  llvm::Value* c_before;
  llvm::Value* c;
  llvm::Value* dc;
};
struct CellGradients {
  CellGates dz;
  llvm::Value* dc_before;
};
/// The gradients of the arguments of the activations, and of c_before. `multiplier`: of g; null: 1.
[[nodiscard]] CellGradients gradients_of_cell(VectorIr& v, const CellGates& gates, llvm::Value* multiplier,
                                              llvm::Value* dh, const CellMemory& memory);

/// The cell of an LSTM, of vectors in the type of the sums, in the very steps of templates/cell.cuh: the
/// formulas stand at Epilogue in include/sparsekiln/problem.h. Matrices of four gates hold i, f, g and o one
/// after the other.
class CellIr {
 public:
  using Value = llvm::Value;
  using Gates = CellGates;
  /// How a pass reads and writes vectors of an element type at an address.
  struct Access {
    std::function<Value*(DType type, Value* address)> load;
    std::function<void(DType type, Value* value, Value* address)> store;
  };

  CellIr(VectorIr& v, const CellForm& form) : v_(v), ir_(v.ir), form_(form) {}

  /// Reads its part of the Call; called once, where a pass begins.
  void begin();

  /// The cells of the four sums of neighbours in y, the first of which is y[major][minor], at `y`.
  void forward(Gates z, Value* major, Value* minor, Value* y, const Access& access) const;
  /// Their gradients, from those of such neighbours in y; `y_stride` is that of the gradients of z, in
  /// elements.
  void backward(Value* dh, Value* major, Value* minor, Value* y, Value* y_stride, const Access& access) const;

 private:
  /// A matrix of Call::cell.
  struct Matrix {
    DType type;
    Value* data;
    Value* stride;
  };
  [[nodiscard]] Matrix matrix(std::size_t offset, DType type, const char* name);
  /// The address of the elements of a gate that lie as those of y[major][minor] do.
  [[nodiscard]] Value* at(const Matrix& matrix, Value* major, Value* minor, std::int64_t gate = 0) const;
  /// Elements from what is of the first gate to what is of another.
  [[nodiscard]] Value* ahead(Value* stride, std::int64_t gate) const;

  VectorIr& v_;
  llvm::IRBuilder<>& ir_;
  CellForm form_;
  Value* features_ = nullptr;
  Matrix projection_{};
  Matrix activations_{};
  Matrix c_before_{};
  Matrix c_{};
  Matrix dc_{};
  Matrix dc_before_{};
};

}  // namespace sparsekiln::cpu
