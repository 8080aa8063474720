#pragma once

#include <string_view>

#include <dlpack/dlpack.h>
#include <sparsekiln/tensor_view.h>

namespace sparsekiln {

/// A DLPack tensor as a view; an empty one for null. `name` is the operand's, for messages. Throws
/// `invalid_argument` for more dimensions than kMaxRank, for types that are none of DType, and for memory
/// that neither the cpu nor a CUDA device reads.
[[nodiscard]] TensorView view_of(std::string_view name, const DLTensor* tensor);

}  // namespace sparsekiln
