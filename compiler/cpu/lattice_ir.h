#pragma once

#include <array>
#include <vector>

#include <llvm/IR/Value.h>

#include "compiler/correlation.h"
#include "compiler/cpu/vector_ir.h"

namespace sparsekiln::cpu {

// How the passes of a convolution count the points of its lattice (compiler/correlation.h).

/// The coordinates of a point, 0 or more, by its number in rows of `pitch`.
[[nodiscard]] std::array<llvm::Value*, 3> point_of(VectorIr& ir, llvm::Value* number,
                                                   const Correlation& lattice);

/// The row of x that an image has at point `number`, counted from the least that is read, of a phase; the
/// image's first one where that is outside.
struct RowOfPoint {
  llvm::Value* row;
  llvm::Value* present;
};
[[nodiscard]] RowOfPoint row_of_point(VectorIr& ir, llvm::Value* image, llvm::Value* phase,
                                      llvm::Value* number, const Correlation& lattice);

/// Whether all are there, and each one's row follows that of the one before.
[[nodiscard]] llvm::Value* are_neighbours(VectorIr& ir, const std::vector<RowOfPoint>& points);

}  // namespace sparsekiln::cpu
