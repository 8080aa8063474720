#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <sparsekiln/tensor_view.h>

namespace sparsekiln {

/// Rows of elements at one distance: of an activation, or, as one row, of dense memory.
struct Region {
  std::string_view name;
  const std::byte* begin = nullptr;
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
  std::int64_t stride_bytes = 0;
  [[nodiscard]] bool empty() const { return begin == nullptr || rows == 0 || row_bytes == 0; }
  [[nodiscard]] std::int64_t bytes() const { return (rows - 1) * stride_bytes + row_bytes; }
};

/// False where two regions surely share no byte. Columns of one wider tensor do not: their rows alternate.
[[nodiscard]] bool overlap(const Region& a, const Region& b);

/// A checked activation: matrices of n × features, or of the positions of n images.
struct Activation2D {
  std::string_view name;
  const TensorView* view = nullptr;
  std::int64_t n = 0;
  std::int64_t positions = 1;  ///< rows of an entry of the batch: those of a convolution's image
  bool images = false;         ///< each is one row, [features, positions]
  std::int64_t stride = 0;     ///< elements from row to row of one matrix
  std::int64_t matrices = 1;
  std::int64_t matrix_bytes = 0;   ///< from one to the next
  bool joins = true;               ///< all of them are laid out as one matrix …
  std::int64_t joined_stride = 0;  ///< … with as many elements from row to row

  /// The rows of one matrix, batch-major.
  [[nodiscard]] std::int64_t batch_rows() const { return n * positions; }
  /// What a kernel is launched with: all of the matrices at once, or one of them.
  [[nodiscard]] std::int64_t launch_stride(bool joined) const { return joined ? joined_stride : stride; }
  [[nodiscard]] Region region(std::int64_t features, bool feature_major) const;
  /// Whether no two matrices share an element: they follow one another, or all are side by side in each row
  /// of one wider matrix.
  [[nodiscard]] bool apart(std::int64_t features, bool feature_major) const;
};

}  // namespace sparsekiln
