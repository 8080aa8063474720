#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>

#include <sparsekiln/c.h>

#include "python/torch_operators/known_kernels.h"

namespace sparsekiln::torch_operators {

std::int32_t dtype_of(const Tensor& tensor);
/// Contiguous memory of the type, or `dtype`, and on the device of a tensor.
Tensor empty(std::span<const std::int64_t> shape, const Tensor& like, std::optional<std::int32_t> dtype = {});
inline Tensor empty(std::initializer_list<std::int64_t> shape, const Tensor& like,
                    std::optional<std::int32_t> dtype = {}) {
  return empty(std::span(shape.begin(), shape.size()), like, dtype);
}

/// The rows of a tensor [..., features], which is read as a matrix; -1 where it cannot be.
std::int64_t rows_of(const Tensor& tensor);
/// What kernels read instead of a tensor with elements that are repeated, such as the gradient of a mean: a
/// copy.
Tensor unrepeated(const Tensor& tensor);
/// As `tensor`, with so many features.
Tensor empty_rows(const Tensor& tensor, std::int64_t features);

/// A launch of a kernel on tensors.
class Launch {
 public:
  explicit Launch(const KnownKernel& kernel);
  /// `length`: of its first dimension, so much is used.
  void add(const char* name, const Tensor& tensor, std::optional<std::int64_t> length = {});
  /// A tensor [..., features], as a matrix.
  void add_rows(const char* name, const Tensor& tensor);
  void add(const char* name, const std::optional<Tensor>& tensor) {
    if (tensor) add(name, *tensor);
  }
  /// Whether it was launched: Python finds out why not.
  [[nodiscard]] bool run();

 private:
  static constexpr std::size_t kMost = 6;
  using Extents = std::array<std::int64_t, SK_MOST_DIMENSIONS>;
  DLTensor* start(const char* name, const Tensor& tensor, std::int32_t dimensions);
  const KnownKernel& kernel_;
  bool possible_ = true;
  std::size_t count_ = 0;
  std::array<DLTensor, kMost> tensors_;
  std::array<sk_operand, kMost> operands_;
  std::array<Extents, kMost> shapes_, strides_;
};

}  // namespace sparsekiln::torch_operators
