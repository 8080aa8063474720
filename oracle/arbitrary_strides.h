#pragma once

#include <cstdint>

#include <sparsekiln/convolution.h>
#include <sparsekiln/tensor_view.h>

namespace sparsekiln {

/// The same matrix with strides as frameworks give them, for axes of extent 1: those of contiguous memory, 0,
/// 1, odd, negative or huge numbers. Every other seed puts one more such axis in front, which makes it a
/// batch of one matrix.
[[nodiscard]] TensorView with_arbitrary_strides(TensorView matrix, std::uint64_t seed);

/// The rows of a convolution's activation, whose images have positions of these extents, of which the last
/// `dimensions` count. Every other seed makes axes of these, and of the images, instead of one axis of rows;
/// with `axes` each seed does.
[[nodiscard]] TensorView with_arbitrary_strides(TensorView rows, std::uint64_t seed,
                                                const Convolution::Extents& extents, std::int32_t dimensions,
                                                bool axes);

/// The equivalent for images whose features come first: rows [n, features · positions] as [n, features, …],
/// with one axis of positions or with those of their extents.
[[nodiscard]] TensorView as_images(TensorView rows, std::uint64_t seed, std::int64_t features,
                                   const Convolution::Extents& extents, std::int32_t dimensions, bool axes);

}  // namespace sparsekiln
