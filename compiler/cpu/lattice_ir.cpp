#include "compiler/cpu/lattice_ir.h"

#include <cstddef>

#include "compiler/launch_operands.h"

namespace sparsekiln::cpu {

llvm::Value* ImageExtents::launched(std::size_t offset, std::size_t dimension) const {
  llvm::Value* place = v_.at(v_.call, static_cast<std::int64_t>(offset + 4 * dimension));
  return v_.ir.CreateZExt(v_.unchanging(v_.ir.getInt32Ty(), place, 4, "extent"), v_.ir.getInt64Ty());
}

llvm::Value* ImageExtents::input(std::size_t dimension) const {
  if (!lattice_.dynamic) return v_.constant(lattice_.input[dimension]);
  return launched(offsetof(LaunchOperands, images) + offsetof(LaunchImages, input), dimension);
}

llvm::Value* ImageExtents::output(std::size_t dimension) const {
  if (!lattice_.dynamic) return v_.constant(lattice_.output[dimension]);
  return launched(offsetof(LaunchOperands, images) + offsetof(LaunchImages, output), dimension);
}

llvm::Value* ImageExtents::points(std::size_t dimension) const {
  const std::int32_t step = lattice_.out_step[dimension];
  return v_.ir.CreateUDiv(v_.plus(output(dimension), v_.constant(step - 1)), v_.constant(step));
}

llvm::Value* ImageExtents::input_positions() const {
  return v_.ir.CreateMul(v_.ir.CreateMul(input(0), input(1)), input(2));
}

llvm::Value* ImageExtents::output_positions() const {
  return v_.ir.CreateMul(v_.ir.CreateMul(output(0), output(1)), output(2));
}

llvm::Value* ImageExtents::lattice_points() const {
  return v_.ir.CreateMul(v_.ir.CreateMul(points(0), points(1)), points(2));
}

llvm::Value* ImageExtents::span() const {
  const auto before = [&](std::size_t dimension) {
    return v_.ir.CreateSub(points(dimension), v_.constant(1));
  };
  llvm::Value* lines = v_.plus(v_.times(before(0), lattice_.pitch[1]), before(1));
  return v_.plus(v_.times(lines, lattice_.pitch[2]), points(2));
}

llvm::Value* image_points(VectorIr& v, const Geometry& geometry) {
  return v.plus(v.constant((geometry.images - 1) * geometry.correlation->image_pitch()),
                ImageExtents(v, *geometry.correlation).span());
}

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
  const ImageExtents extents(v, lattice);
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
    present = v.ir.CreateAnd(present, v.ir.CreateICmpULT(at, extents.input(i)));
    row = v.plus(v.ir.CreateMul(row, extents.input(i)), at);
  }
  llvm::Value* first = v.ir.CreateMul(images.first, extents.input_positions());
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
  const ImageExtents extents(v, lattice);
  llvm::Value* present = point.present;
  llvm::Value* row = point.image;
  for (std::size_t i = 0; i < 3; ++i) {
    llvm::Value* at = v.plus(v.times(point.at[i], lattice.out_step[i]), residues[i]);
    present = v.ir.CreateAnd(present, v.ir.CreateICmpSLT(point.at[i], extents.points(i)));
    present = v.ir.CreateAnd(present, v.ir.CreateICmpSLT(at, extents.output(i)));
    row = v.plus(v.ir.CreateMul(row, extents.output(i)), at);
  }
  return {row, present};
}

}  // namespace sparsekiln::cpu
