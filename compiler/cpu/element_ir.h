#pragma once

#include <sparsekiln/problem.h>

#include "compiler/cpu/vector_ir.h"

namespace sparsekiln::cpu {

/// How the code of the cpu target reads and writes one element type. A new type is a row in the table of
/// compiler/cpu/element_ir.cpp, besides its row in compiler/element.cpp.
struct ElementIr {
  DType value;
  /// What an element is loaded and stored as.
  llvm::Type* (*stored)(VectorIr&);
  /// A vector of elements in the type that they are summed in (sum_type), exactly.
  llvm::Value* (*widened)(VectorIr&, llvm::Value* elements);
  /// Back, as VectorIr::rounded_to says.
  llvm::Value* (*rounded)(VectorIr&, llvm::Value* values, bool short_nans);
};
[[nodiscard]] const ElementIr& element_ir(DType type);

}  // namespace sparsekiln::cpu
