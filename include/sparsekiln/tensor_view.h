#pragma once

#include <cstdint>

#include <sparsekiln/problem.h>

namespace sparsekiln {

/// A tensor that someone else owns, on the kernel's device: address, type, shape and strides (in elements).
/// Checked at every launch at no cost; nothing is copied. Rank 2 for x and y, 3 for w (any, where
/// it is packed).
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int32_t rank = 0;
  std::int64_t shape[3] = {0, 0, 0};
  std::int64_t stride[3] = {0, 0, 0};
};

/// Views of dense row-major memory. The pointer's constness is dropped: only y is ever written.
[[nodiscard]] TensorView view(const void* data, DType dtype, std::int64_t rows, std::int64_t cols);
[[nodiscard]] TensorView view(const void* data, DType dtype, std::int64_t blocks, std::int64_t block_out,
                              std::int64_t block_in);
/// Rows at a distance of `row_stride` elements: a slice of a wider tensor.
[[nodiscard]] TensorView strided_view(const void* data, DType dtype, std::int64_t rows, std::int64_t cols,
                                      std::int64_t row_stride);

}  // namespace sparsekiln
