#include "oracle/arbitrary_strides.h"

#include <array>
#include <limits>

#include "oracle/draw.h"

namespace sparsekiln {

TensorView with_arbitrary_strides(TensorView matrix, std::uint64_t seed) {
  const std::array<std::int64_t, 8> strides{matrix.shape[1],
                                            0,
                                            1,
                                            7,
                                            -3,
                                            matrix.shape[0] * matrix.shape[1] + 1,
                                            std::int64_t{1} << 40 | 1,
                                            std::numeric_limits<std::int64_t>::max()};
  const auto any = [&](std::uint64_t i) { return strides[draw(seed, i) % strides.size()]; };
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

}  // namespace sparsekiln
