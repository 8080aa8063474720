#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sparsekiln/problem.h>
#include <sparsekiln/tensor_view.h>

#include "compiler/spmm.h"

namespace sparsekiln {

/// The host image of a y under test, filled with a NaN that no arithmetic produces: y itself, the gaps
/// between its rows where the stride is wider, and a guard zone before and after. Copy the image to the
/// device's memory, launch with `view`, copy it back: what a kernel left out, and what it wrote beside y, is
/// then known.
class PoisonedOutput {
 public:
  /// `row_stride` in elements; 0: out_features. Throws `invalid_argument` where it is less than a row.
  PoisonedOutput(const Spmm& problem, std::int64_t n, std::int64_t row_stride = 0);

  [[nodiscard]] std::span<std::byte> image() { return image_; }
  [[nodiscard]] std::span<const std::byte> image() const { return image_; }
  /// y within the memory that holds the image; as aligned as that memory, up to 256 bytes.
  [[nodiscard]] TensorView view(void* memory) const;

  /// y in the image: n rows of out_features elements, row_stride apart.
  [[nodiscard]] const std::byte* y() const { return image_.data() + guard_; }
  [[nodiscard]] std::byte* y() { return image_.data() + guard_; }
  [[nodiscard]] std::int64_t n() const { return n_; }
  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] std::int64_t row_stride() const { return row_stride_; }
  [[nodiscard]] DType dtype() const { return dtype_; }

  /// What the poison tells.
  struct Findings {
    std::int64_t unwritten = 0;  ///< elements of y that still hold the poison
    std::int64_t stray = 0;      ///< elements beside y that no longer do
    std::string first;           ///< where the first of them is; empty where there is none
  };
  [[nodiscard]] Findings inspect() const;

 private:
  DType dtype_;
  std::int64_t n_;
  std::int64_t width_;
  std::int64_t row_stride_;
  std::int64_t guard_;  ///< bytes before y, and at least as many after it
  std::vector<std::byte> image_;
};

}  // namespace sparsekiln
