#pragma once

#include <cstdint>
#include <vector>

namespace sparsekiln {

/// The offset of a feature of a position, counted over all images, where an image is [features, positions].
[[nodiscard]] inline std::int64_t offset_in_images(std::int64_t row, std::int64_t feature,
                                                   std::int64_t stride, std::int64_t positions) {
  return row / positions * stride + feature * positions + row % positions;
}

/// What a product multiplies, in host memory, elements of problem.dtype: x (dy, for grad_input), [n,
/// in_features] or, feature-major, [in_features, n], and the weight's values[blocks, block_out, block_in].
/// The rows of a convolution's x are its positions, and its blocks are [blocks, taps]; feature-major, images
/// are [features, positions], and x_stride and z_stride apart.
struct HostOperands {
  const void* x = nullptr;
  const void* w = nullptr;
  std::int64_t x_stride = 0;           ///< elements from one row of x to the next
  const void* z = nullptr;             ///< with Problem::derivative, like x
  std::int64_t z_stride = 0;           ///< elements
  const void* block_scales = nullptr;  ///< with Problem::block_scales, of the type of sums
};

/// The product for some rows of y, row-major [count, out_features]: in float64, of float64 operands in
/// `long double`, rounded once.
struct Reference {
  std::vector<double> y;          ///< x·Bᵀ
  std::vector<double> magnitude;  ///< |x|·|B|ᵀ, what rounding errors scale with; empty unless asked for
};

}  // namespace sparsekiln
