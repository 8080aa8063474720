#pragma once

#include <cstdint>

#include <sparsekiln/problem.h>

namespace sparsekiln {

/// Where a tensor lies, as TensorView::device: a CUDA device's number, or one of these.
inline constexpr std::int32_t kAnyDevice = -2;   ///< its owner does not say; it is not checked
inline constexpr std::int32_t kHostDevice = -1;  ///< the memory of the cpu target

/// The most dimensions of a tensor.
inline constexpr std::int32_t kMaxRank = 5;

/// A tensor that someone else owns: address, type, device, shape and strides (in elements). Checked at every
/// launch at no cost; nothing is copied. Activations have rank 2, or 3 for a batch of matrices, and those of
/// a convolution 2, 3 where channels come first, or 2 more than it has dimensions; weights 3, and 4 with taps
/// (any, where packed); a bias and block scales 1, the gains and biases of edges 2. Dimensions from `rank` on
/// are 0.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int32_t rank = 0;
  std::int64_t shape[kMaxRank] = {};
  std::int64_t stride[kMaxRank] = {};
  std::int32_t device = kAnyDevice;
};

/// Views of dense row-major memory. The pointer's constness is dropped: only what is computed is ever
/// written.
[[nodiscard]] TensorView view(const void* data, DType dtype, std::int64_t elements);
[[nodiscard]] TensorView view(const void* data, DType dtype, std::int64_t rows, std::int64_t cols);
[[nodiscard]] TensorView view(const void* data, DType dtype, std::int64_t blocks, std::int64_t block_out,
                              std::int64_t block_in);
/// Rows at a distance of `row_stride` elements: a slice of a wider tensor.
[[nodiscard]] TensorView strided_view(const void* data, DType dtype, std::int64_t rows, std::int64_t cols,
                                      std::int64_t row_stride);

}  // namespace sparsekiln
