#include "compiler/cpu/lattice_ir.h"

#include "compiler/cpu/passes.h"

namespace sparsekiln::cpu {

llvm::Value* tile_of_image(VectorIr& v, const Geometry& geometry) {
  if (!geometry.correlation) return v.batch_tile;
  return v.ir.CreateURem(v.batch_tile, v.constant(geometry.correlation->tiles(geometry.tile_n)));
}

llvm::Value* image_of_tile(VectorIr& v, const Geometry& geometry) {
  return v.ir.CreateUDiv(v.batch_tile, v.constant(geometry.correlation->tiles(geometry.tile_n)));
}

std::array<llvm::Value*, 3> point_of(VectorIr& v, llvm::Value* number, const Correlation& lattice) {
  llvm::Value* row = v.ir.CreateUDiv(number, v.constant(lattice.pitch[2]));
  llvm::Value* plane = v.ir.CreateUDiv(row, v.constant(lattice.pitch[1]));
  return {plane, v.ir.CreateURem(row, v.constant(lattice.pitch[1])),
          v.ir.CreateURem(number, v.constant(lattice.pitch[2]))};
}

RowOfPoint row_of_point(VectorIr& v, llvm::Value* image, llvm::Value* phase, llvm::Value* number,
                        const Correlation& lattice) {
  const auto& [depth, height, width] = lattice.origin;
  const std::int64_t origin = (std::int64_t{depth} * lattice.pitch[1] + height) * lattice.pitch[2] + width;
  const std::array<llvm::Value*, 3> point =
      point_of(v, v.plus(number, v.constant(lattice.least - origin)), lattice);
  llvm::Value* present = v.ir.getTrue();
  llvm::Value* row = image;
  for (std::size_t i = 0; i < 3; ++i) {
    llvm::Value* residue = v.constant(lattice.phases[0][i]);
    for (std::size_t one = 1; one < lattice.phases.size(); ++one)
      residue = v.ir.CreateSelect(v.ir.CreateICmpEQ(phase, v.constant(static_cast<std::int64_t>(one))),
                                  v.constant(lattice.phases[one][i]), residue);
    llvm::Value* at =
        v.plus(v.times(v.plus(point[i], v.constant(lattice.origin[i])), lattice.in_step[i]), residue);
    // Below 0 is beyond the end as an unsigned number.
    present = v.ir.CreateAnd(present, v.ir.CreateICmpULT(at, v.constant(lattice.input[i])));
    row = v.plus(v.times(row, lattice.input[i]), at);
  }
  llvm::Value* first = v.times(image, lattice.input_positions());
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

}  // namespace sparsekiln::cpu
