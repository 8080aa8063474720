#pragma once

#include <cstddef>
#include <cstdint>

#include "emulator/isa/matrix_descriptor.h"
#include "emulator/machine/wgmma.h"
#include "emulator/ptx/module.h"

namespace sparsekiln::emulator {

/// The form of a wgmma.mma_async, in as many bits as Instruction::detail has. Operands of the Instruction: D,
/// which is written; D, which is read; the registers or the descriptor of A; the descriptor of B; scale-d.
struct MatrixForm {
  std::uint8_t column_blocks = 1;  ///< N / 8
  std::uint8_t element_bytes = 2;  ///< of A and B
  std::uint8_t sum_registers = 4;  ///< for 8 columns
  bool a_in_registers = false;
  MatrixMajor a = MatrixMajor::k;
  MatrixMajor b = MatrixMajor::k;
  bool negates = false;  ///< the products
  bool saturates = false;

  [[nodiscard]] std::size_t sums() const { return std::size_t{column_blocks} * sum_registers; }
  [[nodiscard]] std::uint32_t columns() const { return column_blocks * 8u; }
  [[nodiscard]] std::uint32_t depth() const { return kMatrixRowBytes / element_bytes; }  ///< K

  static constexpr std::uint32_t kMatrixRowBytes = 32;  ///< of a row of A, or of a column of B
};
static_assert(sizeof(MatrixForm) == sizeof(std::uint64_t));

inline constexpr std::size_t kMatrixARegisters = 4;

/// What computes D for a warp once its operation is run; null for types that wgmma has not.
[[nodiscard]] MatrixProduct product_of(ptx::Type sums, ptx::Type a, ptx::Type b);

}  // namespace sparsekiln::emulator
