#pragma once

#include <cstdint>

/// Matrices of wgmma in shared memory (PTX ISA 9.7.15.5.1, "Register Fragments and Shared Memory Matrix
/// Layouts").
namespace sparsekiln::emulator {

/// How units of 16 bytes are permuted: bits 62 and 63 of a descriptor.
enum class MatrixSwizzle : std::uint8_t { none = 0, bytes128 = 1, bytes64 = 2, bytes32 = 3 };

/// What lies side by side: elements of one row (k), or of one k (mn). A row is one of A, or a column of B.
enum class MatrixMajor : std::uint8_t { k, mn };

/// A matrix descriptor ("Matrix Descriptor Format").
struct MatrixDescriptor {
  std::uint32_t start = 0;    ///< the low 18 bits of the shared address
  std::uint32_t leading = 0;  ///< leading dimension byte offset, LBO
  std::uint32_t stride = 0;   ///< stride dimension byte offset, SBO
  std::uint32_t base = 0;     ///< matrix base offset: (address where the swizzle's pattern starts >> 7) mod 8
  MatrixSwizzle swizzle = MatrixSwizzle::none;
};

[[nodiscard]] constexpr MatrixDescriptor parse_descriptor(std::uint64_t bits) {
  const auto decoded = [=](int from) { return static_cast<std::uint32_t>(bits >> from & 0x3fff) << 4; };
  return {.start = decoded(0),
          .leading = decoded(16),
          .stride = decoded(32),
          .base = static_cast<std::uint32_t>(bits >> 49 & 7),
          .swizzle = static_cast<MatrixSwizzle>(bits >> 62)};
}

inline constexpr std::uint32_t kMatrixUnitBytes = 16;
/// The shared addresses that a descriptor can hold.
inline constexpr std::uint32_t kMatrixAddresses = std::uint32_t{1} << 18;

/// log2 of the units side by side in a pattern, which is B of Swizzle<B, 4, 3> as well.
[[nodiscard]] constexpr std::uint32_t swizzle_bits(MatrixSwizzle swizzle) {
  return swizzle == MatrixSwizzle::none ? 0 : 4 - static_cast<std::uint32_t>(swizzle);
}

/// The low 18 bits of the shared address of an element. The 16 bytes of a unit, which this begins at a
/// multiple of, are never torn apart.
///
/// The ISA's table "Canonical Layouts" says where elements lie before they are swizzled, as shapes and
/// strides of ((row), (k)) or ((mn), (k)); T elements are one unit. CUTLASS has the same at make_gmma_desc
/// (include/cute/atom/mma_traits_sm90_gmma.hpp):
///
///     swizzle  K-major                            MN-major
///     none     ((8,m),(T,2k)):((1T,SBO),(1,LBO))  ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO))
///      32 B    ((8,m),(T,2k)):((2T,SBO),(1,T))    ((T,2,m),(8,k)):((1,T,LBO),(2T,SBO))
///      64 B    ((8,m),(T,2k)):((4T,SBO),(1,T))    ((T,4,m),(8,k)):((1,T,LBO),(4T,SBO))
///     128 B    ((8,m),(T,2k)):((8T,SBO),(1,T))    ((T,8,m),(8,k)):((1,T,LBO),(8T,SBO))
///
/// So a swizzled K-major matrix does not use LBO. Swizzle<B, 4, 3> then flips those of the B address bits
/// from bit 4 on that are set in the B bits from bit 7 on: bits of the address itself, since a pattern starts
/// where they are zero; if it does not, the base offset says where, and they count from there.
[[nodiscard]] constexpr std::uint32_t matrix_address(const MatrixDescriptor& matrix, MatrixMajor major,
                                                     std::uint32_t element_bytes, std::uint32_t row,
                                                     std::uint32_t k) {
  constexpr std::uint32_t kPatternRows = 8;
  const std::uint32_t bits = swizzle_bits(matrix.swizzle);
  const std::uint32_t pattern_row_bytes = kMatrixUnitBytes << bits;
  const std::uint32_t in_unit = kMatrixUnitBytes / element_bytes;
  std::uint32_t offset = 0;
  if (major == MatrixMajor::k) {
    const std::uint32_t next_unit = bits == 0 ? matrix.leading : kMatrixUnitBytes;
    offset = row % kPatternRows * pattern_row_bytes + row / kPatternRows * matrix.stride +
             k / in_unit * next_unit + k % in_unit * element_bytes;
  } else {
    const std::uint32_t next_pattern = bits == 0 ? matrix.stride : matrix.leading;
    const std::uint32_t next_k = bits == 0 ? matrix.leading : matrix.stride;
    const std::uint32_t unit = row / in_unit;
    offset = row % in_unit * element_bytes + (unit & ((1u << bits) - 1)) * kMatrixUnitBytes +
             (unit >> bits) * next_pattern + k % kPatternRows * pattern_row_bytes + k / kPatternRows * next_k;
  }
  const std::uint32_t address = matrix.start + offset;
  const std::uint32_t flipped = ((address >> 7) - matrix.base) & ((1u << bits) - 1);
  return (address ^ flipped << 4) % kMatrixAddresses;
}

/// The address of a unit: of one row, and the k of as many elements as `k` counts (K-major), or of one k, and
/// rows (MN-major).
[[nodiscard]] constexpr std::uint32_t unit_address(const MatrixDescriptor& matrix, MatrixMajor major,
                                                   std::uint32_t row, std::uint32_t k) {
  return matrix_address(matrix, major, kMatrixUnitBytes, row, k);
}

}  // namespace sparsekiln::emulator
