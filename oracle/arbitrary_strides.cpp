#include "oracle/arbitrary_strides.h"

#include <array>
#include <cstddef>
#include <limits>

#include "oracle/draw.h"

namespace sparsekiln {
namespace {

/// One of the strides that frameworks give an axis of extent 1, for a matrix of this shape.
std::int64_t any_stride(std::int64_t rows, std::int64_t cols, std::uint64_t seed, std::uint64_t i) {
  const std::array<std::int64_t, 8> strides{cols,
                                            0,
                                            1,
                                            7,
                                            -3,
                                            rows * cols + 1,
                                            std::int64_t{1} << 40 | 1,
                                            std::numeric_limits<std::int64_t>::max()};
  return strides[draw(seed, i) % strides.size()];
}

/// Images made of these rows: axes of extent 1 get any stride.
TensorView with_any_strides(TensorView images, const TensorView& rows, std::uint64_t seed) {
  for (std::int32_t axis = 0; axis < images.rank; ++axis)
    if (images.shape[axis] == 1)
      images.stride[axis] =
          any_stride(rows.shape[0], rows.shape[1], seed, 1 + static_cast<std::uint64_t>(axis));
  return images;
}

}  // namespace

TensorView with_arbitrary_strides(TensorView matrix, std::uint64_t seed) {
  const auto any = [&](std::uint64_t i) { return any_stride(matrix.shape[0], matrix.shape[1], seed, i); };
  for (std::uint64_t axis = 0; axis < 2; ++axis)
    if (matrix.shape[axis] == 1) matrix.stride[axis] = any(axis);
  if (draw(seed, 2) % 2 == 0) return matrix;
  TensorView batch = matrix;
  batch.rank = 3;
  batch.shape[0] = 1;
  batch.stride[0] = any(3);
  for (int axis = 0; axis < 2; ++axis) {
    batch.shape[axis + 1] = matrix.shape[axis];
    batch.stride[axis + 1] = matrix.stride[axis];
  }
  return batch;
}

TensorView with_arbitrary_strides(TensorView rows, std::uint64_t seed, const Convolution::Extents& extents,
                                  std::int32_t dimensions, bool axes) {
  TensorView images = rows;
  if (axes || draw(seed, 0) % 2 == 1) {
    const std::int64_t positions = std::int64_t{extents[0]} * extents[1] * extents[2];
    images.rank = dimensions + 2;
    images.shape[dimensions + 1] = rows.shape[1];
    images.stride[dimensions + 1] = rows.stride[1];
    std::int64_t stride = rows.stride[0];
    for (std::int32_t axis = dimensions; axis > 0; --axis) {
      images.shape[axis] = extents[static_cast<std::size_t>(3 + axis - 1 - dimensions)];
      images.stride[axis] = stride;
      stride *= images.shape[axis];
    }
    images.shape[0] = rows.shape[0] / positions;
    images.stride[0] = stride;
  }
  return with_any_strides(images, rows, seed);
}

TensorView as_images(TensorView rows, std::uint64_t seed, std::int64_t features,
                     const Convolution::Extents& extents, std::int32_t dimensions, bool axes) {
  TensorView images = rows;
  const bool of_extents = axes || draw(seed, 0) % 2 == 1;
  images.rank = of_extents ? dimensions + 2 : 3;
  std::int64_t stride = 1;
  for (std::int32_t axis = images.rank - 1; axis > 1; --axis) {
    const auto place = static_cast<std::size_t>(3 + axis - images.rank);
    images.shape[axis] =
        of_extents ? std::int64_t{extents[place]} : std::int64_t{extents[0]} * extents[1] * extents[2];
    images.stride[axis] = stride;
    stride *= images.shape[axis];
  }
  images.shape[1] = features;
  images.stride[1] = stride;
  return with_any_strides(images, rows, seed);
}

}  // namespace sparsekiln
