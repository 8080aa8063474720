#pragma once

#include <array>
#include <vector>

#include <llvm/IR/Value.h>

#include "compiler/correlation.h"
#include "compiler/cpu/passes.h"
#include "compiler/cpu/vector_ir.h"

namespace sparsekiln::cpu {

// How the passes of a convolution count the points of its lattice (compiler/correlation.h).

/// The extents of a launch's images: constants, or, of a dynamic convolution, numbers of the call.
class ImageExtents {
 public:
  ImageExtents(VectorIr& ir, const Correlation& lattice) : v_(ir), lattice_(lattice) {}

  [[nodiscard]] llvm::Value* input(std::size_t dimension) const;
  [[nodiscard]] llvm::Value* output(std::size_t dimension) const;
  [[nodiscard]] llvm::Value* points(std::size_t dimension) const;
  [[nodiscard]] llvm::Value* input_positions() const;
  [[nodiscard]] llvm::Value* output_positions() const;
  /// Correlation::image_lattice_points and Correlation::span, of such an image.
  [[nodiscard]] llvm::Value* lattice_points() const;
  [[nodiscard]] llvm::Value* span() const;

 private:
  /// The number at `offset` of LaunchOperands.
  [[nodiscard]] llvm::Value* launched(std::size_t offset, std::size_t dimension) const;

  VectorIr& v_;
  const Correlation& lattice_;
};

/// The images that points are numbered in: one, or those from one on, as far as there are any.
struct Images {
  llvm::Value* first;
  llvm::Value* end = nullptr;  ///< null: the first one alone
};

/// A strip by its number among those of all n images; see Geometry.
struct Strip {
  Images images;
  llvm::Value* first_point;
};
/// Points of an image, or of the images that share a tile, from the first to the last that is y's.
[[nodiscard]] llvm::Value* image_points(VectorIr& ir, const Geometry& geometry);
[[nodiscard]] Strip strip(VectorIr& ir, llvm::Value* number, llvm::Value* n, const Geometry& geometry);

/// A point by its number: its image, and its coordinates, 0 or more.
struct Point {
  llvm::Value* image;
  llvm::Value* present;  ///< whether there is such an image
  std::array<llvm::Value*, 3> at;
};
[[nodiscard]] Point point_of(VectorIr& ir, const Images& images, llvm::Value* number,
                             const Correlation& lattice);

/// A row of x or y, and whether there is one.
struct RowOfPoint {
  llvm::Value* row;
  llvm::Value* present;
};
/// The row of x at point `number`, counted from the least that is read, of a phase; the first row of the
/// first image where there is none.
[[nodiscard]] RowOfPoint row_of_point(VectorIr& ir, const Images& images, llvm::Value* phase,
                                      llvm::Value* number, const Correlation& lattice);

/// Whether all are there, and each one's row follows that of the one before.
[[nodiscard]] llvm::Value* are_neighbours(VectorIr& ir, const std::vector<RowOfPoint>& points);

/// Where y's positions of a class are, by its number: their residues by the steps of y.
[[nodiscard]] std::array<llvm::Value*, 3> residues_of(VectorIr& ir, llvm::Value* of_class,
                                                      const Correlation& lattice);
/// The row of y at point `number` of a class of these residues; any number where there is none.
[[nodiscard]] RowOfPoint row_of_y(VectorIr& ir, const Images& images,
                                  const std::array<llvm::Value*, 3>& residues, llvm::Value* number,
                                  const Correlation& lattice);

}  // namespace sparsekiln::cpu
