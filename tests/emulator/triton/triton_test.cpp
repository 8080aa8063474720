// PTX that another compiler wrote, so that a reading of the ISA is not tested by itself alone. The files in
// ptx/ are what compile_triton.py makes of its own kernels.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/emulator/triton/matrices.h"

using namespace sparsekiln;

namespace {

Matrix multiply(const TritonKernel& kernel, const Matrix& a, const Matrix& b, int c_stride) {
  const EmulatedMemory a_memory = upload(kernel, DType::f16, a.values);
  const EmulatedMemory b_memory = upload(kernel, DType::f16, b.values);
  Matrix c(a.rows, b.columns, c_stride, kPoison);
  const EmulatedMemory c_memory = upload(kernel, DType::f16, c.values);
  kernel.launch(groups(a.rows, kernel.constant("BLOCK_M")), groups(b.columns, kernel.constant("BLOCK_N")),
                {a_memory.address(), b_memory.address(), c_memory.address(), a.rows, b.columns, a.columns,
                 a.stride, b.stride, c.stride});
  download(c_memory, DType::f16, c);
  return c;
}

void check_whole_numbers(const char* name, int m, int n, int k, int a_stride, int b_stride, int c_stride) {
  const TritonKernel kernel(name);
  const Matrix a = whole_numbers(m, k, a_stride, 1);
  const Matrix b = whole_numbers(k, n, b_stride, 2);
  const Matrix c = multiply(kernel, a, b, c_stride);
  CHECK(wrong(c, [&](int row, int column) { return dot(a, b, row, column); }, kExact) == 0);
}

}  // namespace

TEST_CASE("Triton's matmul is exact on whole numbers") {
  check_whole_numbers("matmul_f16_sm80", 64, 64, 32, 32, 64, 64);
  check_whole_numbers("matmul_f16_sm80", 100, 70, 200, 208, 80, 96);
  check_whole_numbers("matmul_f16_sm80", 1, 1, 1, 16, 16, 16);
}

TEST_CASE("Triton's matmul over odd strides is exact on whole numbers") {
  check_whole_numbers("matmul_f16_odd_sm80", 67, 130, 45, 47, 131, 133);
  check_whole_numbers("matmul_f16_odd_sm80", 3, 5, 97, 97, 5, 5);
}

TEST_CASE("Triton's matmul of any numbers is off by roundings only") {
  const TritonKernel kernel("matmul_f16_sm80");
  const Matrix a = any_numbers(90, 150, 160, 3);
  const Matrix b = any_numbers(150, 77, 80, 4);
  const Matrix c = multiply(kernel, a, b, 80);
  const auto expected = [&](int row, int column) { return dot(a, b, row, column); };
  const auto bound = [&](int row, int column) {
    return std::fabs(expected(row, column)) * 0x1p-11 + dot(a, b, row, column, true) * 0x1p-20;
  };
  CHECK(wrong(c, expected, bound) == 0);
}

TEST_CASE("Triton's block-sparse matmul is exact on whole numbers, also over empty rows") {
  const TritonKernel kernel("block_sparse_f16_sm80");
  const int block = kernel.constant("BLOCK");
  const std::vector<std::int32_t> row_begin = {0, 2, 2, 5, 6};  // the second row of blocks is empty
  const std::vector<std::int32_t> lut = {0, 3, 1, 2, 4, 0};
  const int batch = 75;
  const int block_rows = 4;
  const Matrix x = whole_numbers(batch, 5 * block, 5 * block, 5);
  const Matrix values = whole_numbers(static_cast<int>(lut.size()) * block, block, block, 6);
  Matrix y(batch, block_rows * block, block_rows * block + 16, kPoison);
  const EmulatedMemory values_memory = upload(kernel, DType::f16, values.values);
  const EmulatedMemory lut_memory = upload(kernel, lut);
  const EmulatedMemory begin_memory = upload(kernel, row_begin);
  const EmulatedMemory x_memory = upload(kernel, DType::f16, x.values);
  const EmulatedMemory y_memory = upload(kernel, DType::f16, y.values);
  kernel.launch(block_rows, groups(batch, kernel.constant("TILE_N")),
                {values_memory.address(), lut_memory.address(), begin_memory.address(), x_memory.address(),
                 y_memory.address(), batch, x.stride, y.stride});
  download(y_memory, DType::f16, y);
  const auto expected = [&](int row, int column) {
    double sum = 0;
    const auto block_row = static_cast<std::size_t>(column / block);
    for (std::int32_t at = row_begin[block_row]; at < row_begin[block_row + 1]; ++at)
      for (int k = 0; k < block; ++k)
        sum += static_cast<double>(x.at(row, lut[static_cast<std::size_t>(at)] * block + k)) *
               values.at(at * block + column % block, k);
    return sum;
  };
  CHECK(wrong(y, expected, kExact) == 0);
}

TEST_CASE("Triton's softmax is off by its approximations only") {
  for (const char* const name : {"softmax_f32_sm80", "softmax_f32_sm90"}) {
    const TritonKernel kernel(name);
    const Matrix x = any_numbers(7, 1000, 1003, 7);
    Matrix y(7, 1000, 1001, kPoison);
    const EmulatedMemory y_memory = upload(kernel, DType::f32, y.values);
    const EmulatedMemory x_memory = upload(kernel, DType::f32, x.values);
    kernel.launch(7, 1, {y_memory.address(), x_memory.address(), x.columns, x.stride, y.stride});
    download(y_memory, DType::f32, y);
    const auto expected = [&](int row, int column) {
      double sum = 0;
      for (int i = 0; i < x.columns; ++i) sum += std::exp(static_cast<double>(x.at(row, i)));
      return std::exp(static_cast<double>(x.at(row, column))) / sum;
    };
    CHECK(wrong(y, expected, [&](int row, int column) { return 2e-6 * expected(row, column); }) == 0);
  }
}
