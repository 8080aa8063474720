#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/c.h>

// What programs of the C interface launch kernels with.

namespace sparsekiln {

/// A dense float32 tensor on the cpu.
struct Array {
  explicit Array(std::vector<std::int64_t> extents) : shape(std::move(extents)) {
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) size *= extent;
    values.resize(static_cast<std::size_t>(size));
    tensor.data = values.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = static_cast<int>(shape.size());
    tensor.dtype = {kDLFloat, 32, 1};
    tensor.shape = shape.data();
  }
  Array(const Array&) = delete;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
  DLTensor tensor{};
};

/// A launch: operands by name, and what it takes besides.
struct CLaunch {
  CLaunch() { sk_launch_init(&launch); }
  /// Replaces one of the same name.
  void set(const char* name, const DLTensor* tensor) {
    for (sk_operand& operand : operands)
      if (std::string_view(operand.name) == name) {
        operand.tensor = tensor;
        return;
      }
    operands.push_back({name, tensor});
  }
  [[nodiscard]] sk_status run(const sk_kernel* kernel) const {
    return sk_kernel_run(kernel, operands.data(), operands.size(), &launch);
  }
  std::vector<sk_operand> operands;
  sk_launch launch;
};

/// Blocks (0, 1) and (1, 0) of a grid of 2 × 2.
inline sk_layout* exchange() {
  const std::array<std::int32_t, 3> crow = {0, 1, 2};
  const std::array<std::int32_t, 2> col = {1, 0};
  sk_layout* layout = nullptr;
  REQUIRE(sk_layout_from_csr(2, 2, crow.data(), col.data(), &layout) == SK_OK);
  return layout;
}

}  // namespace sparsekiln
