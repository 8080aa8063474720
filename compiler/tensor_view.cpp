#include <sparsekiln/tensor_view.h>

namespace sparsekiln {
namespace {

TensorView make_view(const void* data, DType dtype, std::int32_t rank) {
  TensorView result;
  result.data = const_cast<void*>(data);
  result.dtype = dtype;
  result.rank = rank;
  return result;
}

}  // namespace

TensorView strided_view(const void* data, DType dtype, std::int64_t rows, std::int64_t cols,
                        std::int64_t row_stride) {
  TensorView result = make_view(data, dtype, 2);
  result.shape[0] = rows;
  result.shape[1] = cols;
  result.stride[0] = row_stride;
  result.stride[1] = 1;
  return result;
}

TensorView view(const void* data, DType dtype, std::int64_t elements) {
  TensorView result = make_view(data, dtype, 1);
  result.shape[0] = elements;
  result.stride[0] = 1;
  return result;
}

TensorView view(const void* data, DType dtype, std::int64_t rows, std::int64_t cols) {
  return strided_view(data, dtype, rows, cols, cols);
}

TensorView view(const void* data, DType dtype, std::int64_t blocks, std::int64_t block_out,
                std::int64_t block_in) {
  TensorView result = make_view(data, dtype, 3);
  result.shape[0] = blocks;
  result.shape[1] = block_out;
  result.shape[2] = block_in;
  result.stride[0] = block_out * block_in;
  result.stride[1] = block_in;
  result.stride[2] = 1;
  return result;
}

}  // namespace sparsekiln
