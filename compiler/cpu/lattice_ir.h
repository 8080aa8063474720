#pragma once

#include <array>

#include <llvm/IR/Value.h>

#include "compiler/correlation.h"
#include "compiler/cpu/vector_ir.h"

namespace sparsekiln::cpu {

// How the passes of a convolution count the points of its lattice (compiler/correlation.h).

/// The coordinates of a point, 0 or more, by its number in rows of `pitch`.
[[nodiscard]] std::array<llvm::Value*, 3> point_of(VectorIr& ir, llvm::Value* number,
                                                   const Correlation& lattice);

/// A row of x or y, and whether there is one.
struct RowOfPoint {
  llvm::Value* row;
  llvm::Value* present;
};
/// The row of x that an image has at point `number`, counted from the least that is read, of a phase; the
/// image's first one where that is outside.
[[nodiscard]] RowOfPoint row_of_point(VectorIr& ir, llvm::Value* image, llvm::Value* phase,
                                      llvm::Value* number, const Correlation& lattice);

/// Where y's positions of a class are, by its number: their residues by the steps of y.
[[nodiscard]] std::array<llvm::Value*, 3> residues_of(VectorIr& ir, llvm::Value* of_class,
                                                      const Correlation& lattice);
/// The row of y that an image has at point `number` of a class of these residues; any number where it has
/// none.
[[nodiscard]] RowOfPoint row_of_y(VectorIr& ir, llvm::Value* image,
                                  const std::array<llvm::Value*, 3>& residues, llvm::Value* number,
                                  const Correlation& lattice);

}  // namespace sparsekiln::cpu
