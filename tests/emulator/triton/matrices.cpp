#include "tests/emulator/triton/matrices.h"

#include <cstring>
#include <random>

#include "compiler/element.h"

using namespace sparsekiln;

Matrix whole_numbers(int rows, int columns, int stride, unsigned seed) {
  Matrix matrix(rows, columns, stride, 0);
  std::mt19937 dice(seed);
  for (float& value : matrix.values) value = static_cast<float>(static_cast<int>(dice() % 7) - 3);
  return matrix;
}

Matrix any_numbers(int rows, int columns, int stride, unsigned seed) {
  Matrix matrix(rows, columns, stride, 0);
  std::mt19937 dice(seed);
  std::uint16_t half = 0;
  for (float& value : matrix.values) {
    store(DType::f16, static_cast<float>(dice() % 2001) / 1000.0f - 1.0f, &half, 0);
    value = to_float(DType::f16, &half, 0);
  }
  return matrix;
}

EmulatedMemory upload(const TritonKernel& kernel, DType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * (type == DType::f16 ? 2 : 4));
  store(type, values, bytes.data(), 0);
  return EmulatedMemory(kernel.context(), bytes);
}

EmulatedMemory upload(const TritonKernel& kernel, const std::vector<std::int32_t>& values) {
  std::vector<std::byte> bytes(values.size() * 4);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return EmulatedMemory(kernel.context(), bytes);
}

void download(const EmulatedMemory& memory, DType type, Matrix& matrix) {
  to_float(type, memory.read().data(), 0, matrix.values);
}

double dot(const Matrix& a, const Matrix& b, int row, int column, bool of_sizes) {
  double sum = 0;
  for (int k = 0; k < a.columns; ++k) {
    const double product = static_cast<double>(a.at(row, k)) * b.at(k, column);
    sum += of_sizes ? std::fabs(product) : product;
  }
  return sum;
}
