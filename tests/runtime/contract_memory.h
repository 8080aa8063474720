#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

#include "runtime/operand_check.h"

namespace sparsekiln {

/// A dense view, row-major.
[[nodiscard]] inline TensorView dense_view(void* data, const std::vector<std::int64_t>& shape) {
  TensorView view;
  view.data = data;
  view.rank = static_cast<std::int32_t>(shape.size());
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) {
    view.shape[axis] = shape[axis];
    view.stride[axis] = stride;
  }
  return view;
}

/// A contract, and memory that nothing reads, for operands that are checked against it.
class ContractMemory {
 public:
  explicit ContractMemory(std::size_t parts) : bytes_(parts * kPart + 16) {}
  OperandContract contract;

  /// Memory of its own for each operand, aligned to 16 bytes.
  [[nodiscard]] void* place(std::size_t part) const {
    return const_cast<std::byte*>(bytes_.data()) +
           (16 - reinterpret_cast<std::uintptr_t>(bytes_.data()) % 16) + part * kPart;
  }
  [[nodiscard]] CheckedOperands check(const Operands& operands) const {
    return check_operands(operands, contract, TakenOperands(contract), kHostDevice);
  }
  /// Why operands are refused; empty where they are not.
  [[nodiscard]] std::string refusal(const Operands& operands) const {
    try {
      static_cast<void>(check(operands));
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::invalid_argument);
      return error.what();
    }
    return "";
  }

 private:
  static constexpr std::size_t kPart = 1 << 16;  ///< bytes
  std::vector<std::byte> bytes_;
};

}  // namespace sparsekiln
