#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sparsekiln/problem.h>
#include <sparsekiln/tensor_view.h>

#include "compiler/spmm.h"
#include "oracle/spmm_inputs.h"

namespace sparsekiln {

/// The host image of a y under test, filled with a NaN that no arithmetic produces: y itself (unless it is
/// given what it holds before), the gaps between its rows where the stride is wider, and a guard zone before
/// and after. Copy the image to the
/// device's memory, launch with `view`, copy it back: what a kernel left out, and what it wrote beside y, is
/// then known. With it come the images of what an LSTM's cell, or a layer normalisation, computes besides.
class PoisonedOutput {
 public:
  /// For a batch of n. `row_stride` in elements; 0: packed_stride of a row. Throws `invalid_argument` where
  /// it is less than a row.
  PoisonedOutput(const Spmm& problem, std::int64_t n, std::int64_t row_stride = 0);
  /// An output that is any matrix: rows of `width` elements. `name` is what messages call it.
  PoisonedOutput(DType dtype, std::int64_t rows, std::int64_t width, std::string name);
  /// What y holds before the launch, for kernels that read it: of this n and width.
  void set(const HostActivation& y);
  /// Sets all that a launch with such inputs adds to: y where beta is not 0, and dnorm, of which there
  /// is an image only then.
  void hold(const HostInputs& inputs);

  /// What the launch computes besides y, by the names and in the order of the table of operands, and dnorm
  /// after them.
  [[nodiscard]] std::span<PoisonedOutput> others() { return others_; }
  [[nodiscard]] std::span<const PoisonedOutput> others() const { return others_; }
  /// Throws `internal` where there is none of that name.
  [[nodiscard]] const PoisonedOutput& other(std::string_view name) const;
  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] std::span<std::byte> image() { return image_; }
  [[nodiscard]] std::span<const std::byte> image() const { return image_; }
  /// y within the memory that holds the image; as aligned as that memory, up to 256 bytes.
  [[nodiscard]] TensorView view(void* memory) const;
  [[nodiscard]] void* address(void* memory) const { return static_cast<std::byte*>(memory) + guard_; }

  /// y in the image: n rows of out_features elements, row_stride apart; feature-major, out_features rows of
  /// n, and of a convolution an image of [out_features, positions] in each row.
  [[nodiscard]] const std::byte* y() const { return image_.data() + guard_; }
  [[nodiscard]] std::byte* y() { return image_.data() + guard_; }
  /// The offset of an element of y, in elements from y() on.
  [[nodiscard]] std::int64_t at(std::int64_t entry, std::int64_t feature) const {
    if (image_positions_ != 0) return offset_in_images(entry, feature, row_stride_, image_positions_);
    return feature_major_ ? feature * row_stride_ + entry : entry * row_stride_ + feature;
  }
  /// Rows of y: of a convolution those of all positions.
  [[nodiscard]] std::int64_t n() const { return n_; }
  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] std::int64_t row_stride() const { return row_stride_; }
  [[nodiscard]] DType dtype() const { return dtype_; }

  /// What the poison tells; of the other images, too.
  struct Findings {
    std::int64_t unwritten = 0;  ///< elements of y that still hold the poison
    std::int64_t stray = 0;      ///< elements beside y that no longer do
    std::string first;           ///< where the first of them is; empty where there is none
  };
  [[nodiscard]] Findings inspect() const;

 private:
  [[nodiscard]] std::int64_t rows() const {
    return image_positions_ != 0 ? n_ / image_positions_ : feature_major_ ? width_ : n_;
  }
  [[nodiscard]] std::int64_t row_length() const {
    return image_positions_ != 0 ? width_ * image_positions_ : feature_major_ ? n_ : width_;
  }

  PoisonedOutput(DType dtype, bool feature_major, std::int64_t n, std::int64_t width, std::int64_t row_stride,
                 std::string name, std::int64_t image_positions = 0);

  std::string name_;
  DType dtype_;
  bool feature_major_;
  std::int64_t n_;
  std::int64_t width_;
  std::int64_t row_stride_;
  std::int64_t image_positions_;  ///< of a convolution that is feature-major; else 0
  std::int64_t guard_;            ///< bytes before y, and at least as many after it
  std::vector<std::byte> image_;
  std::vector<PoisonedOutput> others_;
};

/// Features of the y of a launch, or of its dx, in memory: where a cell follows a normalisation, not those of
/// the product's y.
[[nodiscard]] std::int64_t result_features(const Spmm& problem);
/// Contiguous elements of it.
[[nodiscard]] std::int64_t result_row_length(const Spmm& problem, std::int64_t n);

}  // namespace sparsekiln
