#include "compiler/cpu/lattice_ir.h"

namespace sparsekiln::cpu {

Strip strip(VectorIr& v, llvm::Value* number, llvm::Value* n, const Geometry& geometry) {
  llvm::Value* strips = v.constant(geometry.image_strips);
  llvm::Value* first = v.times(v.ir.CreateUDiv(number, strips), geometry.images);
  return {{first, geometry.images == 1 ? nullptr : n},
          v.times(v.ir.CreateURem(number, strips), geometry.strip_n())};
}

Point point_of(VectorIr& v, const Images& images, llvm::Value* number, const Correlation& lattice) {
  llvm::Value* row = v.ir.CreateUDiv(number, v.constant(lattice.pitch[2]));
  llvm::Value* plane = v.ir.CreateUDiv(row, v.constant(lattice.pitch[1]));
  const std::array<llvm::Value*, 2> within{v.ir.CreateURem(row, v.constant(lattice.pitch[1])),
                                           v.ir.CreateURem(number, v.constant(lattice.pitch[2]))};
  if (images.end == nullptr) return {images.first, v.ir.getTrue(), {plane, within[0], within[1]}};
  llvm::Value* image = v.plus(images.first, v.ir.CreateUDiv(plane, v.constant(lattice.pitch[0])));
  return {image,
          v.ir.CreateICmpULT(image, images.end),
          {v.ir.CreateURem(plane, v.constant(lattice.pitch[0])), within[0], within[1]}};
}

RowOfPoint row_of_point(VectorIr& v, const Images& images, llvm::Value* phase, llvm::Value* number,
                        const Correlation& lattice) {
  const auto& [depth, height, width] = lattice.origin;
  const std::int64_t origin = (std::int64_t{depth} * lattice.pitch[1] + height) * lattice.pitch[2] + width;
  const Point point = point_of(v, images, v.plus(number, v.constant(lattice.least - origin)), lattice);
  llvm::Value* present = point.present;
  llvm::Value* row = point.image;
  for (std::size_t i = 0; i < 3; ++i) {
    llvm::Value* residue = v.constant(lattice.phases[0][i]);
    for (std::size_t one = 1; one < lattice.phases.size(); ++one)
      residue = v.ir.CreateSelect(v.ir.CreateICmpEQ(phase, v.constant(static_cast<std::int64_t>(one))),
                                  v.constant(lattice.phases[one][i]), residue);
    llvm::Value* at =
        v.plus(v.times(v.plus(point.at[i], v.constant(lattice.origin[i])), lattice.in_step[i]), residue);
    // Below 0 is beyond the end as an unsigned number.
    present = v.ir.CreateAnd(present, v.ir.CreateICmpULT(at, v.constant(lattice.input[i])));
    row = v.plus(v.times(row, lattice.input[i]), at);
  }
  llvm::Value* first = v.times(images.first, lattice.input_positions());
  return {v.ir.CreateSelect(present, row, first), present};
}

llvm::Value* are_neighbours(VectorIr& v, const std::vector<RowOfPoint>& points) {
  llvm::Value* neighbours = points.front().present;
  for (std::size_t i = 1; i < points.size(); ++i) {
    llvm::Value* next = v.plus(points[i - 1].row, v.constant(1));
    neighbours = v.ir.CreateAnd(neighbours, points[i].present);
    neighbours = v.ir.CreateAnd(neighbours, v.ir.CreateICmpEQ(points[i].row, next));
  }
  return neighbours;
}

std::array<llvm::Value*, 3> residues_of(VectorIr& v, llvm::Value* of_class, const Correlation& lattice) {
  std::array<llvm::Value*, 3> residues{};
  llvm::Value* rest = of_class;  // classes are in row-major order of the steps
  for (std::size_t i = 3; i-- > 0;) {
    residues[i] = v.ir.CreateURem(rest, v.constant(lattice.out_step[i]));
    rest = v.ir.CreateUDiv(rest, v.constant(lattice.out_step[i]));
  }
  return residues;
}

RowOfPoint row_of_y(VectorIr& v, const Images& images, const std::array<llvm::Value*, 3>& residues,
                    llvm::Value* number, const Correlation& lattice) {
  const Point point = point_of(v, images, number, lattice);
  llvm::Value* present = point.present;
  llvm::Value* row = point.image;
  for (std::size_t i = 0; i < 3; ++i) {
    llvm::Value* at = v.plus(v.times(point.at[i], lattice.out_step[i]), residues[i]);
    present = v.ir.CreateAnd(present, v.ir.CreateICmpSLT(point.at[i], v.constant(lattice.points[i])));
    present = v.ir.CreateAnd(present, v.ir.CreateICmpSLT(at, v.constant(lattice.output[i])));
    row = v.plus(v.times(row, lattice.output[i]), at);
  }
  return {row, present};
}

}  // namespace sparsekiln::cpu
