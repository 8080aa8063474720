#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <sparsekiln/problem.h>

#include "tests/emulator/triton/triton_kernel.h"

// Matrices for Triton's kernels, and what they must give.

inline constexpr float kPoison = -77;  // of no result

/// A row-major matrix whose rows are further apart than it is wide.
struct Matrix {
  int rows, columns, stride;
  std::vector<float> values;  // rows × stride

  Matrix(int rows_, int columns_, int stride_, float fill)
      : rows(rows_),
        columns(columns_),
        stride(stride_),
        values(static_cast<std::size_t>(rows_) * static_cast<std::size_t>(stride_), fill) {}
  [[nodiscard]] float at(int row, int column) const {
    return values[static_cast<std::size_t>(row) * static_cast<std::size_t>(stride) +
                  static_cast<std::size_t>(column)];
  }
  float& at(int row, int column) {
    return values[static_cast<std::size_t>(row) * static_cast<std::size_t>(stride) +
                  static_cast<std::size_t>(column)];
  }
};

[[nodiscard]] Matrix whole_numbers(int rows, int columns, int stride, unsigned seed);
/// Numbers that are exact in half precision.
[[nodiscard]] Matrix any_numbers(int rows, int columns, int stride, unsigned seed);

[[nodiscard]] EmulatedMemory upload(const TritonKernel& kernel, sparsekiln::DType type,
                                    const std::vector<float>& values);
[[nodiscard]] EmulatedMemory upload(const TritonKernel& kernel, const std::vector<std::int32_t>& values);
void download(const EmulatedMemory& memory, sparsekiln::DType type, Matrix& matrix);

[[nodiscard]] inline unsigned groups(int count, int size) {
  return static_cast<unsigned>((count + size - 1) / size);
}

/// How many elements are not as `expected` says within `bound`, or were written outside the matrix.
template <class ExpectedAt, class BoundAt>
[[nodiscard]] int wrong(const Matrix& got, ExpectedAt expected, BoundAt bound) {
  int count = 0;
  for (int row = 0; row < got.rows; ++row)
    for (int column = 0; column < got.stride; ++column) {
      const bool inside = column < got.columns;
      const double want = inside ? expected(row, column) : kPoison;
      if (!(std::fabs(got.at(row, column) - want) <= (inside ? bound(row, column) : 0))) ++count;
    }
  return count;
}

inline constexpr auto kExact = [](int, int) { return 0.0; };

/// A row of a times a column of b, or of their absolute values.
[[nodiscard]] double dot(const Matrix& a, const Matrix& b, int row, int column, bool of_sizes = false);
