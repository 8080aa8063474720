#pragma once

#include <cstdint>

#include <sparsekiln/tensor_view.h>

namespace sparsekiln {

/// The same matrix with strides as frameworks give them, for axes of extent 1: those of contiguous memory, 0,
/// 1, odd, negative or huge numbers. Every other seed puts one more such axis in front, which makes it a
/// batch of one matrix.
[[nodiscard]] TensorView with_arbitrary_strides(TensorView matrix, std::uint64_t seed);

}  // namespace sparsekiln
